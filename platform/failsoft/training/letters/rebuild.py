"""What a replay needs of a run: to build its parts again in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from failsoft.artifacts.store import ArtifactStore
from failsoft.training.guard import StepGuard
from failsoft.training.letters.requeue import read_requeue
from failsoft.training.loop import Task, TrainLoop
from failsoft.training.state import TrainingState


class Parts(NamedTuple):
    """A state and the guard that moves it."""

    state: TrainingState
    guard: StepGuard


class Rebuild(Protocol):
    """A run, to be built again. One process plays all its ranks: nothing here is wrapped for a process group."""

    @property
    def store(self) -> ArtifactStore:
        """The run's checkpoints; they are only read."""
        ...

    @property
    def identity(self) -> Mapping[str, Any]:
        """What the run is about; checkpoints of another identity are refused."""
        ...

    @property
    def seed(self) -> int:
        """The run's seed, which its generators start from."""
        ...

    def parts(self, seed: int | None = None) -> Parts:
        """New parts as the run began with them; with a seed, other weights."""
        ...

    def loss(self, model: nn.Module, indices: NDArray[np.int64]) -> Tensor:
        """Mean loss over these samples through this model, without any planned fault."""
        ...

    def indices(self, position: int) -> NDArray[np.int64]:
        """The samples of one global batch, in order."""
        ...


@dataclass(kw_only=True)
class LoopRebuild:
    """A run of :class:`TrainLoop`, to be built again.

    The loops are never run: they lend their parts, batches and checkpoints.
    """

    build: Callable[[int | None], TrainLoop]
    """Makes the run's loop for a single rank; given a seed, with other weights."""
    task: Callable[[nn.Module], Task]
    """Makes the task around a model."""

    def __post_init__(self) -> None:
        """Build the run once, for what never changes."""
        self._loop = self.build(None)

    @property
    def store(self) -> ArtifactStore:
        """As the run has it."""
        return self._loop.checkpoints.store

    @property
    def identity(self) -> Mapping[str, Any]:
        """As the run has it."""
        return self._loop.checkpoints.identity

    @property
    def seed(self) -> int:
        """As the run has it."""
        return self._loop.plan.seed

    def parts(self, seed: int | None = None) -> Parts:
        """The state and guard of a new loop."""
        loop = self.build(seed)
        return Parts(state=loop.state, guard=loop.guard)

    def loss(self, model: nn.Module, indices: NDArray[np.int64]) -> Tensor:
        """The task's loss."""
        return self.task(model).loss(indices)

    def indices(self, position: int) -> NDArray[np.int64]:
        """A planned batch, or after the last of them one that was put on the list again."""
        again = position - self._loop.plan.total_batches
        entries = read_requeue(self._loop.desk.folder) if again >= 0 else ()
        if again < len(entries) and again >= 0:
            return np.asarray(entries[again].sample_indices, dtype=np.int64)
        return self._loop.batches.global_indices(position)
