"""What a group of workers takes over from the one before it, and leaves to the one after.

A worker that is killed leaves its snapshots in memory of the host (:mod:`failsoft.training.snapshots.refuge`). The next
group begins with the newest one that every rank holds whole, if the newest checkpoint on disk is older; with the
checkpoint otherwise: when a host is lost or was restarted, with another number of workers, or other settings. Which
rank is on which of the hosts does not matter.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from torch import Tensor

from failsoft.artifacts.store import Artifact
from failsoft.errors import ConfigError
from failsoft.training.checkpoints.checkpoint import Checkpoints
from failsoft.training.checkpoints.inspection import position_of
from failsoft.training.checkpoints.provenance import identity_digest, versions
from failsoft.training.checkpoints.restored import Restored, Source
from failsoft.training.chronicle import Chronicle, Desk
from failsoft.training.loop_plan import LoopPlan
from failsoft.training.ranks import Ranks
from failsoft.training.snapshots.refuge import Refuge
from failsoft.training.snapshots.refuge_moving import bring_home
from failsoft.training.snapshots.refuge_note import Moment, Note
from failsoft.training.snapshots.refuge_opening import open_refuge
from failsoft.training.snapshots.snapshot import RamSnapshots
from failsoft.training.snapshots.snapshot_layout import Part
from failsoft.training.snapshots.snapshot_restore import Held, misfit, other_shards, put_back
from failsoft.training.state import TrainingState, flatten
from failsoft.training.state_fit import MOMENTS

SAVED = "saved"
"""In what lies beside a snapshot: position of the checkpoint that was newest on disk at that moment; -1 without any."""
_VERSIONS = "versions"
_ORPHAN_AFTER_S = 3600.0
"""Longer than any back-off; memory of runs that nobody took up again for so long is given back."""


@dataclass(kw_only=True)
class Succession:
    """One rank's part. All ranks call its methods together, but for :meth:`close`."""

    state: TrainingState
    plan: LoopPlan
    checkpoints: Checkpoints
    snapshots: RamSnapshots
    chronicle: Chronicle
    desk: Desk
    ranks: Ranks
    inherited: Mapping[str, Any] = field(default_factory=dict, init=False)
    """What lay beside the snapshot that the run goes on from; empty when it goes on from disk."""
    refuge: Refuge | None = field(default=None, init=False)
    """Where snapshots outlive this worker; None where there is no such place."""

    def __post_init__(self) -> None:
        """Nothing is opened yet."""
        self._told = ""
        self._identity = identity_digest(self.checkpoints.identity)
        self._refusal = ""

    def take_over(self) -> Restored | None:
        """Restore the newest state that there is; None at the start of a run.

        Raises:
            IncompatibleArtifactError: the checkpoint on disk is of another run or model.
        """
        folder, clock = self.desk.folder, self.desk.clock
        self.refuge, self._refusal = open_refuge(
            self.plan.snapshots, run_folder=folder, bound=self._identity, ranks=self.ranks, clock=clock
        )
        self.checkpoints.instead = self._from_memory
        restored = self.checkpoints.restore(self.state, seed=self.plan.seed)
        if self.refuge is not None:
            self.snapshots.room = self.refuge
            self.refuge.sweep(self.desk.clock.wall_s(), orphan_after_s=_ORPHAN_AFTER_S)
        return restored

    def lay_beside(self, what: Callable[[], Mapping[str, Any]]) -> None:
        """Called with each snapshot: small JSON for whoever goes on from it."""
        if self.refuge is not None:
            self.refuge.beside = lambda: {**what(), _VERSIONS: versions()}

    def look(self) -> None:
        """Say once why snapshots go with the worker, if they do; after each snapshot."""
        refusal = self._refusal if self.refuge is None else self.refuge.refusal
        if refusal and refusal != self._told:
            where = {"rank": self.ranks.rank, "position": self.state.position, "step": self.state.step}
            self.desk.ledger.record("snapshots_go_with_worker", refusal, **where)
        self._told = refusal or self._told

    def leave_nothing(self) -> None:
        """All is on disk: nobody will come back for what lies in memory."""
        if self.refuge is not None:
            self.refuge.remove()

    def close(self) -> None:
        """What lies in memory stays there for the next group; not a collective."""
        if self.refuge is not None:
            self.refuge.close()

    def _from_memory(self, checkpoint: Artifact | None) -> Restored | None:
        """The newest snapshot beyond a checkpoint, in the live parts; None when there is none, and they are as before.

        Args:
            checkpoint: the newest on disk, the same on all ranks.
        """
        newest = -1 if checkpoint is None else int(position_of(checkpoint.manifest))
        bring_home(self.refuge, self.ranks, newer_than=newest)
        notes, unfit = [] if self.refuge is None else self.refuge.notes(), False
        for moment in self._common(notes, checkpoint):
            note = next((note for note in notes if note.moment == moment), None)
            held, problem = self._loaded(note)
            problems = [f"rank {rank}: {text}" for rank, text in enumerate(self.ranks.gather(problem)) if text]
            if held is not None and note is not None and not problems:
                return self._gone_on(held, note)
            unfit = unfit or (held is not None and bool(problem))
            where = {"snapshot_position": moment.position, "snapshot_step": moment.step}
            self.chronicle.tell("snapshot_passed_over", "; ".join(problems), **where)
        if self.refuge is not None and not unfit:  # what is whole is left for whoever sets the model right again; when
            self.refuge.keep_only(None)  # this one goes on from disk instead, its first own snapshot takes its place
        return None

    def _gone_on(self, held: Held, note: Note) -> Restored:
        put_back(held, flatten(self.state).tensors, self.state, self.ranks, with_counts=True)
        self.inherited = note.beside
        self._tell_versions(note.beside.get(_VERSIONS) or {})
        if self.refuge is not None:
            self.refuge.keep_only(note)
        where, step = note.moment.position, note.moment.step
        return Restored(name=f"the snapshot of step {step}", position=where, step=step, source=Source.HOST_MEMORY)

    def _tell_versions(self, then: Mapping[str, str]) -> None:
        """As with a checkpoint: the same run, but with other code no longer the same bit for bit."""
        now = versions()
        differ = {part: [then.get(part), now[part]] for part in now if then.get(part) != now[part]}
        if differ:
            said = f"since the snapshot, {', '.join(differ)} changed"
            self.chronicle.tell("versions_differ", said, versions=differ)

    def _common(self, notes: Sequence[Note], checkpoint: Artifact | None) -> list[Moment]:
        """Moments to go on from, the best first; the same on all ranks."""
        newest = -1 if checkpoint is None else int(position_of(checkpoint.manifest))
        mine = [asdict(note.moment) | {SAVED: note.beside.get(SAVED, -1)} for note in notes]
        told = [json.loads(text) for text in self.ranks.gather(json.dumps([mine, self._damaged()]))]
        if checkpoint is not None and checkpoint.manifest.meta.get("identity_digest") != self._identity:
            return []  # of another run: to restore it says what differs
        return agreed([offers for offers, _ in told], newest=newest, damaged=told[0][1])

    def _damaged(self) -> list[int]:
        """Positions of checkpoints that were put aside; on rank 0."""
        if self.ranks.rank != 0:
            return []
        folder = self.checkpoints.store.root / "quarantine"
        words = [path.name.split("-") for path in folder.glob("position-*")]
        return [int(parts[1]) for parts in words if parts[1].isdigit()]

    def _loaded(self, note: Note | None) -> tuple[Held | None, str]:
        """What the note speaks of, and why it can't be used."""
        if note is None or self.refuge is None:
            return None, "its snapshot is gone"
        held = self.refuge.held(note, next(self.state.model.parameters()).device)
        if held is None:
            return None, "the numbers of its snapshot are not those that were summed up"
        try:
            flat = flatten(self.state)
        except ConfigError as error:
            return None, str(error)
        live, parts = flat.tensors, held.division.parts
        problem = misfit(parts, live, self.state.optimizer, held.scalars["optimizer_groups"])
        return held, problem or other_dtypes(parts, live) or other_shards(held.scalars, flat.scalars)


def other_dtypes(parts: Sequence[Part], live: Mapping[str, Tensor]) -> str:
    """Which numbers of the model are of another dtype now; "" for none. To round them is not for a restart to decide.

    Args:
        parts: of a snapshot of the same names and shapes.
        live: tensors of the state now.
    """
    both = [(part, live[part.name].dtype) for part in parts if part.name in live and not part.name.startswith(MOMENTS)]
    return "; ".join(f"{part.name} was {part.dtype}, it is {dtype} now" for part, dtype in both if dtype != part.dtype)


def agreed(offers: Sequence[Sequence[Mapping[str, Any]]], *, newest: int, damaged: Sequence[int]) -> list[Moment]:
    """Moments beyond the newest checkpoint that every rank has a snapshot of, the newest first. Pure.

    Where a checkpoint that was there then is gone, and not as a damaged one, somebody took it away to go on from an
    older one: there are none then.

    Args:
        offers: of each rank, its moments, with the position of the checkpoint that was newest then (:data:`SAVED`).
        newest: position of the newest checkpoint; -1 without any.
        damaged: positions of checkpoints that were put aside.
    """
    last = max((int(entry[SAVED]) for entry in offers[0]), default=-1)
    if last > newest and last not in damaged:
        return []
    common = [entry for entry in offers[0] if all(entry in others for others in offers)]
    moments = [Moment(**{key: value for key, value in entry.items() if key != SAVED}) for entry in common]
    return sorted((one for one in moments if one.position > newest), key=lambda one: -one.position)
