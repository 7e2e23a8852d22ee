"""One rank's work on one global batch: its share of the samples, the planned faults, the guarded step, the record."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from failsoft.health.faults import Fault, FaultKind
from failsoft.training.chronicle import Chronicle, Desk
from failsoft.training.course import Course
from failsoft.training.faulty import kill_self, strike
from failsoft.training.guard import Refusal, StepOutcome
from failsoft.training.loading.weighing import Loads, share_weight
from failsoft.training.loop_plan import Task
from failsoft.training.memory.net import Batch, MemoryNet
from failsoft.training.ranks import Ranks
from failsoft.training.samples import SampleCount
from failsoft.training.state import TrainingState


@dataclass(kw_only=True)
class BatchWork:
    """Takes the position one on, whatever becomes of the batch."""

    state: TrainingState
    task: Task
    net: MemoryNet
    chronicle: Chronicle
    samples: SampleCount
    desk: Desk
    ranks: Ranks

    def step(self, course: Course) -> StepOutcome:
        """The batch at the state's position, by all ranks together."""
        position = self.state.position
        faults = self._strike(position)
        whole = course.global_indices(position)
        mine = whole[self.ranks.rank :: self.ranks.world]
        if isinstance(self.task, Loads):
            weight = share_weight(self.task, self.ranks, position=position, whole=whole)
        else:
            weight = self.net.weight_of(mine, whole)
        if weight is None:
            outcome = self._without_samples(position, tuple(mine.tolist()))
            return self._done(outcome, course)

        def loss(samples: NDArray[np.int64]) -> Tensor:
            return strike(lambda: self.task.loss(samples), len(samples), faults, self.state.model)

        return self._done(self.net.step(Batch(position=position, whole=whole, loss=loss, weight=weight)), course)

    def _done(self, outcome: StepOutcome, course: Course) -> StepOutcome:
        position = self.state.position
        self.chronicle.consumed(outcome)
        self.samples.met(len(course.global_indices(position)), left_out=course.skipped(position))
        self.state.position += 1
        return outcome

    def _without_samples(self, position: int, ids: tuple[int, ...]) -> StepOutcome:
        """An update of nothing is none: momentum and decay would move the weights all the same."""
        return StepOutcome(position, ids, self.ranks.rank, Refusal.NO_SAMPLE, math.nan, math.nan, math.nan)

    def _strike(self, position: int) -> tuple[Fault, ...]:
        due = self.desk.faults.due(position=position, rank=self.ranks.rank, struck=self.desk.folder / "struck")
        for fault in due:
            self.chronicle.planned(fault)
            if fault.kind is FaultKind.KILL_WORKER:
                kill_self()
        return due
