"""The training loop: batches in, weights out, whatever happens on the way. Knows neither Ray nor what is learnt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from failsoft.errors import ArtifactError, ConfigError, DropRateError, TrainingError
from failsoft.health.faults import FaultKind
from failsoft.training.batches import GlobalBatches
from failsoft.training.breaker import Advice, Breaker, RunState
from failsoft.training.checkpoint import Checkpoints, identity_digest
from failsoft.training.chronicle import Chronicle, Desk
from failsoft.training.faulty import kill_self, strike_loss
from failsoft.training.guard import StepGuard, StepOutcome
from failsoft.training.letter_office import LetterOffice
from failsoft.training.snapshot import RamSnapshots
from failsoft.training.state import TrainingState


class Task(Protocol):
    """What is learnt."""

    def loss(self, indices: NDArray[np.int64]) -> Tensor:
        """Mean loss over these samples (at least one), through the model that the guard and the optimizer hold."""
        ...


@dataclass(frozen=True, kw_only=True)
class LoopPlan:
    """How long, and how often what."""

    total_batches: int
    """Global batches of the whole run, refused ones included."""
    seed: int
    snapshot_every_steps: int = 100
    """Applied steps between RAM snapshots: what a rollback undoes at most."""
    checkpoint_every_steps: int = 2000
    """Applied steps between disk checkpoints: what a restart repeats at most."""

    def __post_init__(self) -> None:
        """Refuse plans that do nothing."""
        for name in ("total_batches", "snapshot_every_steps", "checkpoint_every_steps"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; use 1 or more")


@dataclass(kw_only=True)
class TrainLoop:
    """One rank of one run. The parts belong together: guard, snapshots and checkpoints work on ``state``."""

    state: TrainingState
    task: Task
    batches: GlobalBatches
    plan: LoopPlan
    guard: StepGuard
    breaker: Breaker
    checkpoints: Checkpoints
    desk: Desk

    def __post_init__(self) -> None:
        """Nothing is opened or read yet."""
        self._ranks = self.guard.ranks
        self._snapshots = RamSnapshots(self.state, ranks=self._ranks)
        self._chronicle = Chronicle(self.desk, self.state, self.breaker, self._letters())
        self._since_snapshot = 0
        self._since_checkpoint = 0

    def run(self) -> None:
        """Train to the end, from the newest checkpoint if there is one. All ranks call it together.

        Raises:
            DropRateError: too many batches were refused.
            TrainingError: rolling back does not help, or the state is ill before the first step.
            IncompatibleArtifactError: the checkpoint on disk is of another run or model.
        """
        self._begin()
        with self._chronicle.marking():
            while self.state.position < self.plan.total_batches:
                self._chronicle.begins(self.state.position)
                outcome = self._one_batch()
                advice, why = self.breaker.record(applied=outcome.applied)
                if outcome.applied:
                    self._applied(outcome)
                else:
                    self._chronicle.refused(outcome)
                self._follow(advice, why)
            self._finish()

    def _letters(self) -> LetterOffice:
        return LetterOffice(
            run_folder=self.desk.folder,
            clock=self.desk.clock,
            model=self.state.model,
            ranks=self._ranks,
            task=self.task,
            guard=self.guard,
            policy=self.desk.letters,
            config_digest=identity_digest(self.checkpoints.identity),
            seed=self.plan.seed,
        )

    def _begin(self) -> None:
        self._chronicle.arrived()
        restored = self.checkpoints.restore(self.state, seed=self.plan.seed)
        digest = identity_digest(self.checkpoints.identity)
        self._chronicle.started(
            restored, total_batches=self.plan.total_batches, identity_digest=digest, batches=self.batches
        )
        ill = self._take_snapshot()
        if ill is not None:
            raise self._stopped(
                f"{ill} is not finite before the first step, so there is no state to go back to or to publish; start "
                "from finite weights, and write a mask as a large negative number instead of an infinite one"
            )

    def _one_batch(self) -> StepOutcome:
        position = self.state.position
        kinds = self._strike(position)
        whole = self.batches.global_indices(position)
        mine = whole[self._ranks.rank :: self._ranks.world]
        weight = len(mine) * self._ranks.world / len(whole)  # makes the mean over ranks the mean over samples
        samples = mine if len(mine) else whole[:1]  # a rank without a share goes through the motions with weight 0

        def compute() -> Tensor:
            return strike_loss(self.task.loss(samples) * weight, kinds, self.state.model)

        outcome = self.guard.step(compute, sample_ids=mine.tolist(), position=position)
        self._chronicle.consumed(outcome)
        self.state.position += 1
        return outcome

    def _strike(self, position: int) -> list[FaultKind]:
        due = self.desk.faults.due(position=position, rank=self._ranks.rank, struck=self.desk.folder / "struck")
        for fault in due:
            self._chronicle.planned(fault)
            if fault.kind is FaultKind.KILL_WORKER:
                kill_self()
        return [fault.kind for fault in due]

    def _applied(self, outcome: StepOutcome) -> None:
        self.state.step += 1
        self._since_snapshot += 1
        self._since_checkpoint += 1
        self._chronicle.applied(outcome)
        if self._since_checkpoint >= self.plan.checkpoint_every_steps:
            self._publish()
        elif self._since_snapshot >= self.plan.snapshot_every_steps:
            self._take_snapshot()

    def _follow(self, advice: Advice, why: str) -> None:
        if advice is Advice.ROLL_BACK:
            self._roll_back(why)
        elif advice is not Advice.GO_ON:
            self._stop(advice, why)
        self._chronicle.watched()

    def _roll_back(self, why: str) -> None:
        self.breaker.life.move(RunState.ROLLING_BACK, why=why)
        position, step, burst = self.state.position, self.state.step, self.breaker.in_a_row
        mark = self._snapshots.restore()
        self.state.position = position  # the poisoned stretch is not met again
        self._since_snapshot = 0
        self._since_checkpoint -= step - mark.step
        self.breaker.rolled_back()
        self._chronicle.buried(range(mark.position, position - burst), self.batches)
        self._chronicle.rolled_back(why, mark=mark, step_before=step, burst=burst)
        self.breaker.life.move(RunState.RUNNING, why=f"back at step {mark.step}")

    def _stop(self, advice: Advice, why: str) -> None:
        diagnosis = (
            f"{advice} ({why}) at position {self.state.position}, step {self.state.step}; look at the samples named in "
            f"{self._chronicle.letters_folder}; when the data is mended, start a new run (this one would go on from "
            "its last checkpoint, with the same data)"
        )
        raise self._stopped(diagnosis, DropRateError if advice is Advice.STOP_DROP_RATE else TrainingError)

    def _stopped(self, diagnosis: str, kind: type[TrainingError] = TrainingError) -> TrainingError:
        self.breaker.life.move(RunState.STOPPED, why=diagnosis)
        self._chronicle.stopped(diagnosis)
        return kind(diagnosis)

    def _take_snapshot(self) -> str | None:
        """Returns the name of the ill tensor that kept it from being taken."""
        ill = self._snapshots.take()
        if ill is not None:
            self._chronicle.withheld(ill)
        self._since_snapshot = 0
        return ill

    def _publish(self) -> bool:
        """Checkpoint, and a snapshot of the same moment: so a rollback goes the same way in a run resumed from here."""
        loss = self._chronicle.loss
        metrics = {"position": float(self.state.position), "step": float(self.state.step)}
        with self._chronicle.handing_over():
            published = self.checkpoints.publish(self.state, metrics if loss is None else metrics | {"loss": loss})
        self._since_checkpoint = 0
        self._take_snapshot()
        return published

    def _finish(self) -> None:
        if self.checkpoints.position != self.state.position and not self._publish():
            newest = self._snapshots.newest
            if newest is None or newest.position != self.state.position:  # it was withheld, too: the state is ill
                self._roll_back("the final state is ill")
            if not self._publish():
                raise ArtifactError(
                    f"the final state of the run could not be written to {self.checkpoints.store.root}; make room on "
                    "the disk and start the run again: it goes on from its last checkpoint"
                )
        self.breaker.life.move(RunState.FINISHED, why=f"all {self.plan.total_batches} batches are consumed")
        self._chronicle.finished()
