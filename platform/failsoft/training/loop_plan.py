"""What a training loop is given: what is learnt, how long, and how often what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from failsoft.errors import ConfigError
from failsoft.training.checkpoints.best_interval import BestInterval
from failsoft.training.checkpoints.cadence import Cadence
from failsoft.training.escalation import Poisoned
from failsoft.training.memory.rungs import MemoryPolicy
from failsoft.training.pace.policy import PacePolicy, RemedyPolicy
from failsoft.training.snapshots.snapshot import SnapshotPolicy
from failsoft.training.state import TrainingState


class Task(Protocol):
    """What is learnt.

    A task may do more: ``sources(indices)`` (:class:`failsoft.training.letters.circumstances.KnowsSources`) names
    shards or files for reports, ``take_skipped()`` (:class:`failsoft.training.samples.Skips`) tells samples that it
    left out. When memory is short a batch is cut into pieces: a loss that is no mean over samples says by ``weight`` or
    ``partial_loss`` how pieces add up, and ``shrink`` makes the input smaller
    (:mod:`failsoft.training.memory.micro_batches`).
    """

    def loss(self, indices: NDArray[np.int64]) -> Tensor:
        """Mean loss over these samples (at least one), through the model that the guard and the optimizer hold."""
        ...


class Validation(Protocol):
    """A look at the model between two batches. Both methods are called on all ranks, after an update."""

    def due(self, state: TrainingState) -> bool:
        """Whether to look now; the same answer on all ranks."""
        ...

    def run(self) -> Mapping[str, float]:
        """Look, and leave model and generators as they were; what was found, the same on all ranks."""
        ...


@dataclass(frozen=True, kw_only=True)
class LoopPlan:
    """How long, and how often what."""

    total_batches: int
    """Global batches of the whole run, refused ones included."""
    seed: int
    """Kept in letters, and what generators are set apart by after a rollback."""
    snapshot_every_steps: int = 100
    """Applied steps between RAM snapshots: what a rollback undoes at most."""
    checkpoint_every_steps: int = 2000
    """Applied steps between disk checkpoints: what a restart repeats at most."""
    poisoned: Poisoned = Poisoned.SKIP
    """What becomes of the stretch between the moment that a rollback goes back to and the trouble."""
    checkpoint_every_s: float | None = None
    """Also one when so much time has passed; looked at where the ranks meet for a snapshot."""
    checkpoint_at_epoch_end: bool = False
    """Also one when the last batch of an epoch is consumed."""
    node_mtbf_s: float | None = None
    """Mean time between failures of one node: checkpoints come at the interval that wastes least then, by what they are
    seen to cost and by the nodes there are, instead of by steps. None: by steps."""
    snapshots: SnapshotPolicy = field(default_factory=SnapshotPolicy)
    """Where RAM snapshots lie: everything on each rank, on rank 0, or in shares; and how much RAM they may take."""
    memory: MemoryPolicy = field(default_factory=MemoryPolicy)
    """What is done, in which order, when memory runs out or grows short."""
    pace: PacePolicy | None = field(default_factory=PacePolicy)
    """How slow ranks are found and named; None: nobody looks."""
    pace_remedy: RemedyPolicy | None = None
    """How others take over part of a slow rank's samples; None: it is only named, and the division stays even."""

    full_world: int | None = None
    """How many ranks the run would like to have; with fewer it says that it is degraded. None: as many as it has."""

    def __post_init__(self) -> None:
        """Refuse plans that do nothing."""
        for name in ("total_batches", "snapshot_every_steps", "checkpoint_every_steps"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; use 1 or more")
        if self.pace is None and self.pace_remedy is not None:
            raise ConfigError("pace_remedy is set and pace is None; a slow rank must be found before it is relieved")
        if self.node_mtbf_s is not None:
            BestInterval(node_mtbf_s=self.node_mtbf_s, nodes=1)
        self.cadence()

    def cadence(self) -> Cadence:
        """What makes a disk checkpoint due."""
        return Cadence(
            every_steps=self.checkpoint_every_steps if self.node_mtbf_s is None else None,
            every_s=self.checkpoint_every_s,
            at_epoch_end=self.checkpoint_at_epoch_end,
        )
