"""The training loop: batches in, weights out, whatever happens on the way. Knows neither Ray nor what is learnt."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace

from torch import Tensor

from failsoft.errors import (
    ArtifactError,
    DropRateError,
    NoProgressError,
    NoSnapshotError,
    TrainingError,
)
from failsoft.health.faults import FaultKind
from failsoft.training.batches import GlobalBatches
from failsoft.training.breaker import Advice, Breaker, RunState
from failsoft.training.checkpoints.checkpoint import Checkpoints, identity_digest
from failsoft.training.chronicle import Chronicle, Desk
from failsoft.training.course import Course
from failsoft.training.escalation import Poisoned
from failsoft.training.faulty import kill_self, strike_loss
from failsoft.training.guard import StepGuard, StepOutcome
from failsoft.training.letters.deadletters import read_dead_letters
from failsoft.training.letters.letter_office import LetterOffice
from failsoft.training.loop_plan import LoopPlan, Task
from failsoft.training.ranks import any_rank
from failsoft.training.recovery import Recovery
from failsoft.training.samples import SampleCount
from failsoft.training.snapshots.snapshot import RamSnapshots
from failsoft.training.state import TrainingState
from failsoft.training.stop_report import REPORT_TEXT, StopReport, report_of
from failsoft.training.survival.leaving import save_and_leave
from failsoft.training.survival.watch_policy import WatchPhase
from failsoft.training.survival.watchdog import NoWatch, Watch

__all__ = ["LoopPlan", "Poisoned", "Task", "TrainLoop"]


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
    watch: Watch = field(default_factory=NoWatch)
    told: Callable[[], str | None] = lambda: None  # why all ranks shall leave now, the same on all

    def __post_init__(self) -> None:
        """Nothing is opened or read yet."""
        self._ranks = self.guard.ranks
        self.state.guard = self.guard if self.state.guard is None else self.state.guard
        self.state.ema = self.guard.ema if self.state.ema is None else self.state.ema
        self._snapshots = RamSnapshots(self.state, ranks=self._ranks, policy=self.plan.snapshots)
        self._chronicle = Chronicle(self.desk, self.state, self.breaker, self._letters())
        self.breaker.on_move = self._chronicle.moved
        self._course = Course(batches=self.batches, planned=self.plan.total_batches)
        self._samples = SampleCount(self.task, self._ranks)
        self._snapshot_step = 0
        self._checkpoint_step = 0
        self._checkpoint_s = 0.0
        self._cadence = self.plan.cadence()
        self._ill: str | None = None

    def run(self) -> None:
        """Train to the end, from the newest checkpoint if there is one. All ranks call it together.

        Raises:
            DropRateError: too many batches were refused, or samples skipped; a report names their sources.
            NoProgressError: going back does not help, and what was tried.
            NoSnapshotError: the state is ill before the first step.
            IncompatibleArtifactError: the checkpoint on disk is of another run or model.
            PreemptedError: all ranks were told to leave; what they had is saved.
        """
        with closing(self.checkpoints):
            self._begin()
            with self._chronicle.marking():
                while not self._finished():
                    while self.state.position < self._course.total:
                        self._leave_if_told()
                        self._next()
            self._end()

    def _next(self) -> None:
        """One position: a step, or passing over what is ill for good."""
        position = self.state.position
        self.watch.begins(position)
        self._chronicle.begins(position)
        if self.breaker.passes.for_good(position):
            self.state.position += 1
            self.breaker.passed_over(position)
            self._chronicle.passed_over(position)
            return
        outcome = self._one_batch()
        advice, why = self.breaker.record(applied=outcome.applied, position=position)
        if outcome.applied:
            self._applied(outcome)
        else:
            self._chronicle.refused(outcome)
        self._follow(advice, why)

    def _way_back(self) -> Recovery:
        return Recovery(
            state=self.state,
            guard=self.guard,
            breaker=self.breaker,
            snapshots=self._snapshots,
            checkpoints=self.checkpoints,
            chronicle=self._chronicle,
            poisoned=self.plan.poisoned,
            seed=self.plan.seed,
        )

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
        planned, folder = self.plan.total_batches, self.desk.folder
        self._course = Course.of(self.batches, planned, run_folder=folder, ranks=self._ranks)
        digest = identity_digest(self.checkpoints.identity)
        self._chronicle.started(restored, course=self._course, identity_digest=digest)
        self._checkpoint_step, self._checkpoint_s = self.state.step, self.desk.clock.monotonic_s()
        ill = self._take_snapshot()
        if ill is not None:
            said = (
                f"{ill} is not finite before the first step, so there is no state to go back to or to publish; start "
                "from finite weights, and write a mask as a large negative number instead of an infinite one"
            )
            raise self._stopped(NoSnapshotError(said))

    def _one_batch(self) -> StepOutcome:
        position = self.state.position
        kinds = self._strike(position)
        whole = self._course.global_indices(position)
        mine = whole[self._ranks.rank :: self._ranks.world]
        weight = len(mine) * self._ranks.world / len(whole)  # makes the mean over ranks the mean over samples
        samples = mine if len(mine) else whole[:1]  # a rank without a share goes through the motions with weight 0

        def compute() -> Tensor:
            return strike_loss(self.task.loss(samples) * weight, kinds, self.state.model)

        outcome = self.guard.step(compute, sample_ids=mine.tolist(), position=position)
        self._chronicle.consumed(outcome)
        self._samples.met(len(whole), left_out=self._course.skipped(position))
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
        self._chronicle.applied(outcome)
        meeting = self.state.step - self._snapshot_step >= self.plan.snapshot_every_steps
        due = self._due(meeting=meeting)
        if not due and not meeting:
            self.checkpoints.look()  # a checkpoint that waits is begun as soon as the one before it is written
            return
        self._count_samples()
        trouble = self.checkpoints.tend(self.state)
        if trouble is not None:
            raise self._stopped(TrainingError(trouble))
        if self._take_snapshot() is None and due:
            self._submit()

    def _due(self, *, meeting: bool) -> bool:
        """Whether a disk checkpoint is due; by time only where the ranks meet, and then rank 0's clock counts."""
        steps, ended = self.state.step - self._checkpoint_step, not self.state.position % self.batches.batches_per_epoch
        if self._cadence.due(steps=steps, epoch_ended=ended) is not None:
            return True
        if not meeting or self._cadence.every_s is None:
            return False
        elapsed_s = self.desk.clock.monotonic_s() - self._checkpoint_s
        late = self._cadence.due(steps=steps, elapsed_s=elapsed_s) is not None
        return any_rank(self._ranks, late and self._ranks.rank == 0)

    def _follow(self, advice: Advice, why: str) -> None:
        if advice in {Advice.ROLL_BACK, Advice.STOP_STUCK}:
            self._go_back(why)
        elif advice is Advice.STOP_DROP_RATE:
            raise self._given_up(DropRateError, f"{advice}: {why}")
        elif self._ill is not None:
            self._go_back(f"{self._ill} is not finite, although no step was refused")
        self._chronicle.watched()

    def _go_back(self, why: str) -> None:
        """By whatever remedy is next; the run is at a healthy state afterwards, or at its end."""
        saved = self.checkpoints.position
        with self.watch.during(WatchPhase.CHECKPOINT):
            self._way_back().go_back(why, course=self._course, give_up=self._stuck)
        self._ill = None
        self._samples.forget()
        self._snapshot_step = self.state.step
        if self.checkpoints.position != saved or self.state.step < self._checkpoint_step:
            self._checkpoint_step = self.state.step

    def _stuck(self, why: str) -> TrainingError:
        tried = "; then ".join(entry.in_words() for entry in self.breaker.history)
        return self._given_up(NoProgressError, f"{Advice.STOP_STUCK}: {why}; tried: {tried}")

    def _given_up(self, kind: type[TrainingError], why: str) -> TrainingError:
        report = self._report()
        diagnosis = (
            f"{why}; at position {self.state.position}, step {self.state.step}. {report.headline()} See "
            f"{self.desk.folder / REPORT_TEXT} and: failsoft dlq ls. When the data is mended, start a new run (this "
            "one would go on from its last checkpoint, with the same data)"
        )
        self._chronicle.reported(lambda: replace(report, diagnosis=diagnosis).write(self.desk.folder))
        return self._stopped(kind(diagnosis))

    def _report(self) -> StopReport:
        """Rank 0 reads all letters when all ranks have written theirs."""
        self._ranks.gather("letters are written")
        letters = read_dead_letters(self._chronicle.letters_folder)
        return report_of(letters, task=self.task, num_samples=self.batches.num_samples)

    def _stopped(self, error: TrainingError) -> TrainingError:
        self.breaker.life.move(RunState.STOPPED, why=str(error))
        self._chronicle.stopped(error)
        return error

    def _count_samples(self) -> None:
        """Before a snapshot or checkpoint, so that each holds the whole count; the same on all ranks."""
        advice, why = self.breaker.saw(**self._samples.settled())
        if advice is not Advice.GO_ON:
            raise self._given_up(DropRateError, f"{advice}: {why}")

    def _take_snapshot(self) -> str | None:
        """Returns the name of the ill tensor that kept it from being taken; the run goes back for it."""
        self._ill = self._snapshots.take()
        self._chronicle.snapshot(self._snapshots, ill=self._ill)
        self._snapshot_step = self.state.step
        return self._ill

    def _submit(self) -> None:
        """A checkpoint of the moment that a snapshot was just taken of: a resumed run rolls back as this one would."""
        self._checkpoint_step, self._checkpoint_s = self.state.step, self.desk.clock.monotonic_s()
        with self.watch.during(WatchPhase.CHECKPOINT), self._chronicle.handing_over():
            self.checkpoints.submit(self.state, self._metrics(), judged=True)

    def _metrics(self) -> dict[str, float]:
        metrics = {"position": float(self.state.position), "step": float(self.state.step)}
        return metrics if self._chronicle.loss is None else metrics | {"loss": self._chronicle.loss}

    def _leave_if_told(self) -> None:
        why = self.told()
        if why is not None:
            self._count_samples()
            with self.watch.during(WatchPhase.CHECKPOINT):
                raise save_and_leave(why, self.state, self.checkpoints, self._metrics(), self._chronicle)

    def _finished(self) -> bool:
        """Whether the final state is published; False when there is more to do."""
        if self.state.position < self._course.total:
            return False
        self._count_samples()
        with self.watch.during(WatchPhase.CHECKPOINT):
            self.checkpoints.settle()
        if self.checkpoints.position == self.state.position:
            return True
        if self._take_snapshot() is not None:
            self._go_back(f"{self._ill} is not finite in the final state")
            return False
        with self.watch.during(WatchPhase.CHECKPOINT), self._chronicle.handing_over():
            if any(self.checkpoints.publish(self.state, self._metrics()) for _ in range(2)):
                return True
        raise ArtifactError(
            f"the final state of the run could not be written to {self.checkpoints.store.root}; make room on "
            "the disk and start the run again: it goes on from its last checkpoint"
        )

    def _end(self) -> None:
        self.breaker.life.move(RunState.FINISHED, why=f"all {self._course.total} batches are consumed")
        self._chronicle.finished()
