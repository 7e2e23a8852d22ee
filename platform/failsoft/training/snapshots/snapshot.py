"""The newest healthy state in RAM, to go back to without leaving the process.

What all ranks hold alike may be kept once (``RANK_ZERO``) or in shares (``SHARDED``). Alike under DDP are parameters,
the moments of an optimizer that every rank runs in full, and the parameters of an average. Each rank's own, and always
kept by itself, are the model's and the average's buffers (batch statistics drift apart between forward passes), its
shards of what is sharded (FSDP2), its generators, and the small JSON of scheduler, scaler and the like. An optimizer
that shards its moments behind DDP (ZeRO) needs ``EACH_RANK``.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from failsoft.errors import ConfigError, NoSnapshotError
from failsoft.training.finite import first_ill
from failsoft.training.ranks import Ranks, SoloRank, any_rank
from failsoft.training.rng import HeldRng
from failsoft.training.snapshots.arena import Arena, finite_slices
from failsoft.training.snapshots.host_memory import available_ram_bytes, host_folder
from failsoft.training.snapshots.room import OwnRoom, Room
from failsoft.training.snapshots.snapshot_layout import Division, divide, parts_of
from failsoft.training.snapshots.snapshot_memory import (
    BUFFERS,
    RankNote,
    SnapshotMemory,
    in_gb,
    most_bytes,
    most_bytes_by_place,
    objection,
)
from failsoft.training.snapshots.snapshot_place import SnapshotPlace
from failsoft.training.snapshots.snapshot_restore import Held, misfit, put_back
from failsoft.training.state import FlatState, TrainingState, flatten, own_names


@dataclass(frozen=True, kw_only=True)
class SnapshotPolicy:
    """Where snapshots lie and how much RAM they may take."""

    where: SnapshotPlace = SnapshotPlace.EACH_RANK
    """Which worker's RAM holds a snapshot."""
    max_ram_fraction: float = 0.9
    """Refuse to take more than this fraction of the RAM that is available, over all ranks of a machine."""
    host_folder: Path | None = field(default_factory=host_folder)
    """A file system in memory, where snapshots outlive a worker that is killed; None keeps them in the worker.

    ``$FAILSOFT_HOST_MEMORY`` names another one than ``/dev/shm``, or says ``off``.
    """
    max_host_fraction: float = 0.5
    """Of what is left there, for one buffer: others live there, too (Ray's objects, the loaders of torch)."""

    def __post_init__(self) -> None:
        """Refuse what no machine could give."""
        if not 0.0 < self.max_ram_fraction <= 1.0:
            raise ConfigError(f"max_ram_fraction is {self.max_ram_fraction}; use a fraction above 0, up to 1")
        if not 0.0 < self.max_host_fraction <= 1.0:
            raise ConfigError(f"max_host_fraction is {self.max_host_fraction}; use a fraction above 0, up to 1")


@dataclass(frozen=True, kw_only=True)
class SnapshotMark:
    """Which moment a snapshot holds."""

    position: int
    step: int


@dataclass(frozen=True, kw_only=True)
class _Form:
    """What a state's tensors look like, to notice when that changes, and what follows from it."""

    signature: Sequence[tuple[object, ...]]
    division: Division
    digest: str
    """Equal on all ranks; "" where they may differ."""
    most_bytes: int
    """Both buffers of this rank."""


class RamSnapshots:
    """Two buffers, used in turn: the old snapshot stands until the new one is whole and found healthy on all ranks.

    Args:
        state: what is kept and restored.
        ranks: the ranks that decide together; each calls every method when the others do.
        policy: where and how much.
        available_bytes: how much RAM may still be taken; None for "not known", which refuses nothing.
    """

    def __init__(
        self,
        state: TrainingState,
        *,
        ranks: Ranks | None = None,
        policy: SnapshotPolicy | None = None,
        available_bytes: Callable[[], int | None] = available_ram_bytes,
    ) -> None:
        self._state = state
        self._ranks: Ranks = ranks or SoloRank()
        self._policy = policy or SnapshotPolicy()
        self._available_bytes = available_bytes
        self.room: Room = OwnRoom()
        """Where the buffers lie; to be set before the first snapshot."""
        self._newest: Held | None = None
        self._spare: Arena | None = None
        self._form: _Form | None = None

    @property
    def newest(self) -> SnapshotMark | None:
        """What :meth:`restore` would go back to."""
        if self._newest is None:
            return None
        return SnapshotMark(position=int(self._newest.scalars["position"]), step=int(self._newest.scalars["step"]))

    @property
    def held_bytes(self) -> int:
        """RAM taken by both buffers on this rank."""
        return sum(arena.taken_bytes for arena in self._arenas())

    def report(self) -> SnapshotMemory:
        """RAM taken and needed by this rank, for the state as it is now. No collective.

        Raises:
            ConfigError: the state holds what can't be kept.
        """
        form, ranks = self._form_of(flatten(self._state)), self._ranks
        return SnapshotMemory(
            place=self._policy.where,
            rank=ranks.rank,
            world=ranks.world,
            held_bytes=self.held_bytes,
            most_bytes=form.most_bytes,
            most_bytes_by_place=most_bytes_by_place(form.division.parts, ranks.rank, ranks.world),
            pinned_bytes=sum(arena.taken_bytes for arena in self._arenas() if arena.pinned),
            available_bytes=self._available_bytes(),
            outliving_bytes=self.room.outliving_bytes(),
        )

    def take(self) -> str | None:
        """Copy the state, unless it is ill on any rank; all ranks call it together.

        Every rank looks at all that it holds, also at what another one keeps.

        Returns:
            None when the snapshot was taken, else the name of the tensor that is not finite (the old snapshot stands).

        Raises:
            ConfigError: on all ranks, when one can't take part: too little RAM, or tensors that can't be kept. The old
                snapshot stands.
        """
        self.room.settle()
        flat, note = self._prepared()
        refused = objection(self._told(note), max_ram_fraction=self._policy.max_ram_fraction)
        if flat is None or self._form is None or refused is not None:
            raise ConfigError(refused or note.problem)
        problem, ill = self._copied(flat.tensors, self._form)
        if any_rank(self._ranks, problem is not None or ill is not None):
            return self._given_up(problem, ill)
        self._replace(flat, self._form)
        return None

    def restore(self) -> SnapshotMark:
        """Go back to the newest snapshot: tensors, optimizer, scheduler, scaler, generators, position and step.

        The breaker's counts stay as they are: what was refused, was. The snapshot stays as it is, too. All ranks call
        it together.

        Raises:
            NoSnapshotError: on all ranks, when one of them has none.
            ConfigError: on all ranks, when the live parts of one no longer fit.
        """
        held, mark = self._newest, self.newest
        live, problem = self._live(held)
        note = RankNote(rank=self._ranks.rank, host="", digest=_moment(mark, held), problem=problem)
        notes = self._told(note)
        without = [note.rank for note in notes if not note.digest]
        if held is None or mark is None or without:
            of_whom = f" on rank {', '.join(map(str, without))}" if len(notes) > 1 else ""
            raise NoSnapshotError(f"no snapshot{of_whom} to go back to; take one before the first step")
        refused = objection(notes, max_ram_fraction=1.0)
        if refused is not None:
            raise ConfigError(refused)
        put_back(held, live, self._state, self._ranks)
        return mark

    def _told(self, note: RankNote) -> list[RankNote]:
        """The notes of all ranks."""
        if self._ranks.world == 1:
            return [note]
        return [RankNote.from_json(text) for text in self._ranks.gather(note.to_json())]

    def _arenas(self) -> list[Arena]:
        newest = None if self._newest is None else self._newest.arena
        return [arena for arena in (newest, self._spare) if arena is not None]

    def _prepared(self) -> tuple[FlatState | None, RankNote]:
        """The state, and what the other ranks must know; what is wrong here goes into the note, since they wait."""
        rank, host = self._ranks.rank, socket.gethostname()
        try:
            flat = flatten(self._state)
            form = self._form_of(flat)
        except ConfigError as error:
            return None, RankNote(rank=rank, host=host, digest="", problem=str(error))
        if form is not self._form:
            self._drop_spare()  # a buffer of another form is of no use, and its room is needed
            self._form = form
        needed = max(0, form.most_bytes - self.held_bytes)
        needed = max(0, needed - self.room.spare_bytes()) if needed else 0
        available = self._available_bytes() if needed else None
        return flat, RankNote(rank=rank, host=host, digest=form.digest, needed_bytes=needed, available_bytes=available)

    def _drop_spare(self) -> None:
        if self._spare is not None:
            self.room.free(self._spare)
        self._spare = None

    def _form_of(self, flat: FlatState) -> _Form:
        """The last form, unless the state took on another one (moments appear in the first step)."""
        signature = [(name, t.dtype, t.shape, t.stride(), t.device) for name, t in flat.tensors.items()]
        if self._form is not None and self._form.signature == signature:
            return self._form
        own = own_names(self._state) | flat.shards.keys()
        division = divide(parts_of(flat.tensors, own=own), self._policy.where, self._ranks.world)
        shared = self._policy.where is not SnapshotPlace.EACH_RANK
        return _Form(
            signature=signature,
            division=division,
            digest=division.digest() if shared else "",
            most_bytes=most_bytes(division, self._ranks.rank),
        )

    def _copied(self, tensors: Mapping[str, Tensor], form: _Form) -> tuple[str | None, str | None]:
        """Fill the spare buffer. Returns why that failed, and the name of an ill tensor; two None when all is well."""
        rank = self._ranks.rank
        try:
            self._spare = self._spare or Arena(form.division.kept_by(rank), buffer=self.room.buffer)
        except (RuntimeError, MemoryError) as error:  # both are torch's words for "no memory"
            size = in_gb(form.most_bytes / BUFFERS)
            return f"no memory for a snapshot's buffer of {size} ({error}); give it more, or share by RANK_ZERO", None
        self.room.filling(self._spare)
        healthy = self._spare.fill(tensors) and finite_slices(form.division.watched_by(rank), tensors)
        return None, None if healthy else first_ill(tensors) or "a copy of a healthy tensor"

    def _given_up(self, problem: str | None, ill: str | None) -> str:
        """Tell the other ranks, and hear, why there is no new snapshot."""
        told = [json.loads(text) for text in self._ranks.gather(json.dumps([problem, ill]))]
        problems = [f"rank {rank}: {other}" for rank, (other, _) in enumerate(told) if other is not None]
        if problems:
            raise ConfigError(problem or "; ".join(problems))
        elsewhere = [f"{name} on rank {rank}" for rank, (_, name) in enumerate(told) if name is not None]
        return ill or next(iter(elsewhere), "a tensor of another rank")

    def _replace(self, flat: FlatState, form: _Form) -> None:
        old, arena = self._newest, self._spare
        if arena is not None:
            self._newest = Held(
                arena=arena, division=form.division, digest=form.digest, scalars=flat.scalars, rng=HeldRng.take()
            )
            self._spare = old.arena if old is not None and old.division is form.division else None
            self.room.whole(self._newest, in_use=self._arenas())

    def _live(self, held: Held | None) -> tuple[dict[str, Tensor], str]:
        """The live tensors, and why the snapshot can't go into them."""
        if held is None:
            return {}, ""
        try:
            live = flatten(self._state).tensors
        except ConfigError as error:
            return {}, str(error)
        return live, misfit(held.division.parts, live, self._state.optimizer, held.scalars["optimizer_groups"])


def _moment(mark: SnapshotMark | None, held: Held | None) -> str:
    """What all ranks' snapshots must have in common; "" for none."""
    if mark is None or held is None:
        return ""
    return f"step {mark.step}, position {mark.position}, {held.digest}"
