"""One rank's work on one global batch: its share of the samples, the planned faults, the guarded step, the record."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from failsoft.health.faults import Fault, FaultKind
from failsoft.training.chronicle import Chronicle, Desk
from failsoft.training.course import Course
from failsoft.training.faulty import kill_self, strike, strike_pace
from failsoft.training.guard import Refusal, StepOutcome
from failsoft.training.loading.weighing import Loads, rank_weight
from failsoft.training.loop_plan import Task
from failsoft.training.memory.batch import Batch
from failsoft.training.memory.micro_batches import AddsUp, Indices
from failsoft.training.memory.net import MemoryNet
from failsoft.training.pace.keeper import PaceKeeper
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
    pace: PaceKeeper | None = None

    def __post_init__(self) -> None:
        """Look once at what the task can do; a protocol takes microseconds to look for."""
        self._loads = self.task if isinstance(self.task, Loads) else None
        self._adds_up = self.task if isinstance(self.task, AddsUp) else None

    def step(self, course: Course) -> StepOutcome:
        """The batch at the state's position, by all ranks together."""
        position = self.state.position
        faults = self._strike(position)
        whole = course.global_indices(position)
        mine = self._share(whole, position)
        loads = self._loads
        weight = self.net.weight_of(mine, whole) if loads is None else self._loaded(loads, position, mine, whole)
        if weight is None:
            outcome = self._without_samples(position, tuple(mine.tolist()))
            return self._done(outcome, course)

        if self.pace is not None:
            self.net.least_updates = self.pace.at(position).updates
        batch = self._batch(position, whole, weight, faults)
        return self._done(self.net.step(batch._replace(share=self._dividing(position, mine))), course)

    def _share(self, whole: Indices, position: int) -> Indices:
        """This rank's part of some samples; may be empty."""
        return whole[self.ranks.rank :: self.ranks.world] if self.pace is None else self.pace.part(whole, position)

    def _dividing(self, position: int, mine: Indices) -> Callable[[Indices], Indices]:
        """How parts of the batch are divided; a rank that loads its samples has no others than those it loaded."""
        if self._loads is not None:
            return lambda part: mine[np.isin(mine, part)]
        return lambda part: self._share(part, position)

    def _loaded(self, task: Loads, position: int, mine: Indices, whole: Indices) -> float | None:
        """Load this rank's part, or one sample that does not count; None: no rank has a real one."""
        began_s = self.desk.clock.monotonic_s()
        real = task.load_samples(position, mine if len(mine) else whole[:1], counted=bool(len(mine)))
        if self.pace is not None:
            self.pace.stopwatch.add(self.desk.clock.monotonic_s() - began_s)
        return rank_weight(self.ranks, real)

    def _batch(self, position: int, whole: Indices, weight: float, faults: Sequence[Fault]) -> Batch:
        """What the net may cut into pieces: each pass meets the planned faults by its own size."""
        task, model = self.task, self.state.model

        def loss(samples: Indices) -> Tensor:
            strike_pace(len(samples), faults, self.desk.clock)
            return strike(lambda: task.loss(samples), len(samples), faults, model)

        adds_up = self._adds_up
        if adds_up is None:
            return Batch(position=position, whole=whole, loss=loss, weight=weight)

        def partial_loss(piece: Indices, whole: Indices) -> Tensor:
            strike_pace(len(piece), faults, self.desk.clock)
            return strike(lambda: adds_up.partial_loss(piece, whole), len(piece), faults, model)

        return Batch(position=position, whole=whole, loss=loss, weight=weight, partial_loss=partial_loss)

    def _done(self, outcome: StepOutcome, course: Course) -> StepOutcome:
        position = self.state.position
        self.chronicle.consumed(outcome)
        samples = len(course.global_indices(position))
        self.samples.met(samples, left_out=course.skipped(position))
        if self.pace is not None:
            self.pace.worked(samples, position)
        self.state.position += 1
        return outcome

    def _without_samples(self, position: int, ids: tuple[int, ...]) -> StepOutcome:
        """An update of nothing is none: momentum and decay would move the weights all the same."""
        return StepOutcome(position, ids, self.ranks.rank, Refusal.NO_SAMPLE, math.nan, math.nan, math.nan)

    def _strike(self, position: int) -> tuple[Fault, ...]:
        due = self.desk.faults.due(position=position, rank=self.ranks.rank, struck=self.desk.folder / "struck")
        for fault in due:
            if position == fault.position:  # one that lasts is told once
                self.chronicle.planned(fault)
            if fault.kind is FaultKind.KILL_WORKER:
                kill_self()
        return due
