"""One rank's work on one global batch: its share of the samples, the planned faults, the guarded step, the record."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from failsoft.health.faults import Fault, FaultKind
from failsoft.training.chronicle import Chronicle, Desk
from failsoft.training.course import Course
from failsoft.training.faulty import kill_self, strike
from failsoft.training.guard import Refusal, StepOutcome
from failsoft.training.loading.weighing import Loads, share_weight
from failsoft.training.loop_plan import Task
from failsoft.training.memory.micro_batches import AddsUp, Indices
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

        return self._done(self.net.step(self._batch(position, whole, weight, faults)), course)

    def _batch(self, position: int, whole: Indices, weight: float, faults: Sequence[Fault]) -> Batch:
        """What the net may cut into pieces: each pass meets the planned faults by its own size."""
        task, model = self.task, self.state.model

        def loss(samples: Indices) -> Tensor:
            return strike(lambda: task.loss(samples), len(samples), faults, model)

        if not isinstance(task, AddsUp):
            return Batch(position=position, whole=whole, loss=loss, weight=weight)
        adds_up: AddsUp = task

        def partial_loss(piece: Indices, whole: Indices) -> Tensor:
            return strike(lambda: adds_up.partial_loss(piece, whole), len(piece), faults, model)

        return Batch(position=position, whole=whole, loss=loss, partial_loss=partial_loss, weight=weight)

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
