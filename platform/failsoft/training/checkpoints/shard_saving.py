"""How the ranks of a sharded state hand a checkpoint over: they agree on it, then each gives its own writer its part.

Whether a checkpoint is begun, and which files hold what, must be the same on all ranks, or rank 0's writer would wait
for shards that never come. So no rank replaces a checkpoint that waits: while one waits anywhere, the new one is left
out on all ranks, and that is told. They meet in the run's folder, or, where not all ranks see it, on the remote store.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from socket import gethostname
from typing import Any

from torch import Tensor

from failsoft.errors import ConfigError
from failsoft.health.ledger import Ledger
from failsoft.training.boxes import Box
from failsoft.training.checkpoints.content import small_part
from failsoft.training.checkpoints.formats import SHARDS
from failsoft.training.checkpoints.mirror import Mirror
from failsoft.training.checkpoints.shard_layout import Held, ShardLayout, ShardPlace, merged
from failsoft.training.checkpoints.shard_writing import Staging
from failsoft.training.checkpoints.writer import CheckpointWriter
from failsoft.training.checkpoints.writer_news import NewsKind, Ticket
from failsoft.training.checkpoints.writer_slot import Slot, spec_of, unnamed
from failsoft.training.ranks import Ranks, from_rank_zero
from failsoft.training.rng import capture_rng
from failsoft.training.sharding import Shard
from failsoft.training.state import FlatState
from failsoft.training.together import begun

_ENTRY_BYTES, _PIECE_BYTES, _RNG_BYTES = 200, 64, 32 * 1024
"""Of the small part: for each tensor, for each rank's piece of it, for each rank's generators."""
_CROWDED = "two before it are still being written on some rank: the storage is slower than the schedule"


@dataclass(kw_only=True)
class ShardSaving:
    """One rank's side of it."""

    writer: CheckpointWriter
    ranks: Ranks
    identity: Mapping[str, Any]
    ledger: Ledger
    mirror: Mirror | None = None
    """Of the remote store, on which the shards meet where the ranks share no storage."""
    apart: bool = field(default=False, init=False)
    """The ranks share no storage."""
    landed: dict[str, int] = field(default_factory=dict, init=False)
    """Positions of what lies on the remote store alone, by folder."""

    def __post_init__(self) -> None:
        """Nothing is agreed yet."""
        self._attempt = ""
        self._pieces = _Pieces()
        self._mine: Mapping[str, Held] | None = None
        self._layout: ShardLayout | None = None
        self._layout_text = ""
        self._failed: dict[str, str] = {}

    def submit(self, flat: FlatState, ticket: Ticket, *, own: frozenset[str], refused: str | None) -> None:
        """Hand this rank's part to its writer, on all ranks or on none. All ranks call it together.

        Args:
            flat: this rank's state.
            ticket: of the moment.
            own: names of the tensors that each rank has its own of (buffers).
            refused: why nothing may be published now; rank 0's word counts.

        Raises:
            ConfigError: on all ranks: they hold different tensors, or together not all of one, or one that can't be
                saved, or one of them can't take part at all.
        """
        mine = self._pieces.of(flat, own=own, rank=self.ranks.rank)
        tensors = _written(flat, mine)
        problem = unnamed(tensors)
        slot, short = (None, "") if problem else self._memory(tensors, mine)
        word = {
            "rng": json.dumps(capture_rng()),
            "attempt": secrets.token_hex(8),
            "full": self.writer.full,
            "short": short,
        }
        word |= {"refused": refused or "", "failed": self._failed, "changed": mine is not self._mine}
        kept = False
        try:
            with begun(self.ranks, word | {"problem": problem}) as hear:
                if slot is not None:
                    slot.copy(tensors)  # while the words of the others are on their way
                told = hear()
            layout = self._layout_of(mine, changed=any(entry["changed"] for entry in told))
            ticket = self._placed(ticket, layout, told)
            kept = self._may_go(ticket, told) and slot is not None
            if slot is not None and kept:
                self._hand_over(slot, ticket, flat, tensors, [entry["rng"] for entry in told])
        finally:
            if slot is not None and not kept:
                self.writer.slots.give_back(slot)

    def prepare(self, flat: FlatState, *, own: frozenset[str]) -> None:
        """Make the memory and start the writer ahead of time; ``own`` as in :meth:`submit`. Not a collective."""
        mine = self._pieces.of(flat, own=own, rank=self.ranks.rank)
        tensors = _written(flat, mine)
        if not unnamed(tensors):
            self.writer.prepare(tensors, scalars_bytes=self._room_bytes(mine))

    def find_meeting(self) -> None:
        """Find out at the start of a run whether all ranks see one storage, where their shards are to meet.

        If they do not, the shards meet on the remote store, and the run's folder holds no checkpoints.

        Raises:
            ConfigError: on all ranks, naming those that do not: there is no remote store.
        """
        root, name = self.writer.store.root, from_rank_zero(self.ranks, f".shards-{secrets.token_hex(8)}")
        if self.ranks.rank == 0:
            with suppress(OSError):  # a disk that refuses is told of by the checkpoints
                (root / name).mkdir(parents=True)
        made = from_rank_zero(self.ranks, "yes" if _is_seen(root / name) else "") == "yes"
        told = self.ranks.gather("" if not made or _is_seen(root / name) else gethostname())
        if self.ranks.rank == 0:
            with suppress(OSError):
                (root / name).rmdir()
        apart = [f"rank {rank} on {host}" for rank, host in enumerate(told) if host]
        if apart and self.mirror is None:
            raise ConfigError(
                f"{', '.join(apart)} can't see what rank 0 writes to {root}, and a checkpoint's shards meet there: "
                "put the run's folder (--home) on storage that all nodes share, or give the run a remote store "
                "(--remote s3://…), to which each rank then brings its own"
            )
        self.apart = bool(apart)
        if self.mirror is not None:
            self.mirror.apart = self.apart
        if apart and self.ranks.rank == 0:
            self.ledger.record("shards_meet_remotely", f"{', '.join(apart)} can't see {root}", ranks=len(apart))

    def look(self) -> None:
        """On other ranks than 0: write down what only this rank knows; the checkpoint's fate is rank 0's to tell."""
        words = {NewsKind.FAILED: "shard_failed", NewsKind.LOST: "shard_writer_lost"}
        for news in self.writer.look():
            ticket, word = news.ticket, words.get(news.kind)
            if news.kind is NewsKind.FAILED:
                self._failed[ticket.name] = news.why
            if word is not None:
                where = {"position": ticket.position, "step": ticket.step, "name": ticket.name}
                self.ledger.record(word, news.why, rank=self.ranks.rank, **where)

    def _memory(self, tensors: Mapping[str, Tensor], mine: Mapping[str, Held]) -> tuple[Slot | None, str]:
        """Where to copy it, if nothing waits already; else why there is no memory."""
        try:
            return self.writer.reserve(tensors, self._room_bytes(mine)), ""
        except OSError as error:
            return None, f"no memory to hold it until it is written: {error}"

    def _room_bytes(self, mine: Mapping[str, Held]) -> int:
        """For the small part, which only rank 0 writes; more than it needs, so that it is not made anew for it."""
        if self.ranks.rank:
            return 0
        names = sum(map(len, mine))
        return names + len(mine) * (_ENTRY_BYTES + _PIECE_BYTES * self.ranks.world) + _RNG_BYTES * self.ranks.world

    def _placed(self, ticket: Ticket, layout: ShardLayout, told: list[dict[str, Any]]) -> Ticket:
        """With this rank's part of it."""
        self._attempt = self._attempt or str(told[0]["attempt"])
        place = ShardPlace(rank=self.ranks.rank, world=self.ranks.world, attempt=self._attempt)
        self._pass_on([entry["failed"] for entry in told], place)
        if self.apart and self.mirror is not None:
            folder = f"{ticket.name}.{told[0]['attempt']}"  # drawn anew for each: nobody writes over what may count
            self.landed[folder] = ticket.position
            place = replace(place, landing=self.mirror.landing(folder))
        return replace(ticket, shard=place, meta=dict(ticket.meta) | {SHARDS: summary(layout)})

    def _may_go(self, ticket: Ticket, told: list[dict[str, Any]]) -> bool:
        """Whether it is written; if not, that is news. The same on all ranks."""
        short = [f"rank {rank}: {entry['short']}" for rank, entry in enumerate(told) if entry["short"]]
        if any(entry["full"] for entry in told):
            self.writer.leave_out(ticket, _CROWDED)
        elif told[0]["refused"] or short:
            self.writer.fail(ticket, told[0]["refused"] or "; ".join(short))
        else:
            return True
        return False

    def _hand_over(
        self, slot: Slot, ticket: Ticket, flat: FlatState, tensors: Mapping[str, Tensor], generators: list[str]
    ) -> None:
        leads = self.ranks.rank == 0
        scalars = small_part(flat, self.identity, generators, shards=self._layout_text) if leads else b""
        if slot.room(len(scalars)):
            self.writer.hand_over(ticket, slot, scalars)
        else:  # a scheduler or a config that says very much
            self.writer.slots.give_back(slot)
            self.writer.offer(ticket, tensors, scalars)

    def _layout_of(self, mine: Mapping[str, Held], *, changed: bool) -> ShardLayout:
        """Told anew only when it changed on some rank: moments appear in the first step."""
        if self._layout is None or changed:
            text = json.dumps({name: one.to_plain() for name, one in mine.items()})
            told = [json.loads(other) for other in self.ranks.gather(text)]
            by_rank = [{name: Held.from_plain(plain) for name, plain in entry.items()} for entry in told]
            files = ShardPlace(rank=0, world=self.ranks.world, attempt="").files
            self._layout, self._mine = merged(by_rank, files), mine
            self._layout_text = json.dumps(self._layout.to_plain())
        return self._layout

    def _pass_on(self, failures: list[dict[str, str]], place: ShardPlace) -> None:
        """A rank whose disk refuses even a note has told of it now; rank 0's writer need not wait its patience out."""
        self._failed.clear()
        if self.ranks.rank == 0:
            for rank, failed in enumerate(failures):
                for name, why in failed.items():
                    staging = Staging(root=self.writer.store.root, name=name, place=place)
                    if rank and _is_seen(staging.folder):
                        staging.note_failure(rank, why)


def _is_seen(folder: Path) -> bool:
    try:
        return folder.is_dir()
    except OSError:  # a mount that is stale or forbidden here, for which the other ranks must not wait in vain
        return False


class _Pieces:
    """What this rank has of each tensor, worked out anew only when something changed."""

    def __init__(self) -> None:
        self._key: object = None
        self._held: dict[str, Held] = {}

    def of(self, flat: FlatState, *, own: frozenset[str], rank: int) -> dict[str, Held]:
        """As :func:`held`; the same object as before when nothing changed."""
        kinds = [(name, tensor.dtype, tensor.shape) for name, tensor in flat.tensors.items()]
        key = kinds, own, flat.shards
        if key != self._key:
            self._held, self._key = held(flat, own=own, rank=rank), key
        return self._held


def held(flat: FlatState, *, own: frozenset[str], rank: int) -> dict[str, Held]:
    """What this rank has of each tensor.

    Args:
        flat: its state.
        own: names of those that each rank has its own of.
        rank: this one.
    """
    found: dict[str, Held] = {}
    for name, tensor in flat.tensors.items():
        spec, plain = spec_of(tensor), flat.shards.get(name)
        if plain is None:
            whole, mine = Box.whole(spec.shape), name in own
            found[name] = Held(spec=spec, box=whole, writes=mine or rank == 0, own=mine)
            continue
        shard = Shard.from_plain(plain)
        found[name] = Held(
            spec=replace(spec, shape=shard.shape),
            box=shard.box,
            writes=shard.first,
            mesh=shard.mesh,
            placements=shard.placements,
        )
    return found


def _written(flat: FlatState, mine: Mapping[str, Held]) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in flat.tensors.items() if mine[name].writes and tensor.numel()}


def summary(layout: ShardLayout) -> dict[str, Any]:
    """For the manifest: enough to see how the state was sharded without reading the rest."""
    sharded = [one for one in layout.tensors.values() if one.mesh]
    meshes = sorted({"x".join(map(str, one.mesh)) for one in sharded})
    placements = sorted({",".join(one.placements) for one in sharded})
    return {"files": len(layout.files), "meshes": meshes, "placements": placements, "tensors": len(sharded)}
