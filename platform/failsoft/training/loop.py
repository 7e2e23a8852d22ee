"""The training loop: batches in, weights out, whatever happens on the way. Knows neither Ray nor what is learnt."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace

from failsoft.errors import TrainingError
from failsoft.training.breaker import Advice, RunState
from failsoft.training.callbacks import Moment
from failsoft.training.checkpoints.checkpoint import identity_digest
from failsoft.training.course import Course
from failsoft.training.degradation import smaller_world
from failsoft.training.escalation import Poisoned
from failsoft.training.guard import Refusal, StepOutcome
from failsoft.training.loop_parts import LoopParts
from failsoft.training.loop_plan import LoopPlan, Task, Validation
from failsoft.training.saving import Due
from failsoft.training.survival.leaving import save_and_leave
from failsoft.training.survival.saving_asked import withdraw_wishes
from failsoft.training.survival.watch_policy import WatchPhase

__all__ = ["LoopPlan", "Poisoned", "Task", "TrainLoop"]


@dataclass(kw_only=True)
class TrainLoop(LoopParts):
    """One rank of one run."""

    def run(self) -> None:
        """Train to the end, from the newest checkpoint if there is one. All ranks call it together.

        Raises:
            DropRateError: too many batches were refused, or samples skipped; a report names their sources.
            NoProgressError: going back does not help, and what was tried.
            NoSnapshotError: the state is ill before the first step.
            IncompatibleArtifactError: the checkpoint on disk is of another run or model.
            PreemptedError: all ranks were told to leave; what they had is saved.
        """
        with closing(self.checkpoints), closing(self._succession):
            self._begin()
            with self._chronicle.marking():
                while not self._finished():
                    while self.state.position < self._course.total:
                        self._leave_if_told()
                        self._save_if_asked()
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
        outcome = self._work.step(self._course)
        if outcome.refusal is Refusal.NO_SAMPLE:
            self._without_samples(outcome)
            return
        advice, why = self.breaker.record(applied=outcome.applied, position=position)
        if outcome.applied:
            self._applied(outcome)
        else:
            self._chronicle.refused(outcome)
        self._follow(advice, why)

    def _without_samples(self, outcome: StepOutcome) -> None:
        """Says nothing against the state, so nothing leads back; counted at once, since no update may come for long."""
        self.breaker.passed_over(outcome.position)
        self._chronicle.refused(outcome)
        self._count_samples()

    def _begin(self) -> None:
        self._chronicle.arrived()
        restored = self._succession.take_over()
        planned, folder = self.plan.total_batches, self.desk.folder
        course = Course.of(self.batches, planned, run_folder=folder, ranks=self._ranks)
        self._course = replace(course, divides=None if self._pace is None else self._pace.part)
        digest = identity_digest(self.checkpoints.identity)
        self._chronicle.started(restored, course=self._course, identity_digest=digest)
        self.net.begin()
        if self.plan.full_world is not None and self._ranks.world < self.plan.full_world:
            self.degradations.began(smaller_world(self._ranks.world, of=self.plan.full_world))
        self._make_up()
        ill = self._saving.begin()
        if ill is not None:
            raise self._endings.ill_at_start(ill)

    def _applied(self, outcome: StepOutcome) -> None:
        self.state.step += 1
        self._chronicle.applied(outcome)
        self._look_on()
        due = self._saving.due()
        if due is Due.NOTHING:
            self.checkpoints.look()  # a checkpoint that waits is begun as soon as the one before it is written
            return
        self._look_after_checkpoints()
        self._saving.keep(due)

    def _look_after_checkpoints(self) -> None:
        """Before anything is kept."""
        self._count_samples()
        trouble = self.checkpoints.tend(self.state)
        if trouble is not None:
            raise self._endings.stopped(TrainingError(trouble))

    def _look_on(self) -> None:
        """Before anything of this moment is kept, so that a checkpoint is judged by what was found of it alone."""
        self._saving.found = {}
        if self.validation is not None and self.validation.due(self.state):
            self._look(self.validation)
        if not self._owed.owed:
            self._tell_listeners()

    def _make_up(self) -> None:
        """The look that the group before broke off; before the first snapshot, which is to say that it is done."""
        if self.validation is None or not self._owed.still(self.checkpoints):
            return
        self._look(self.validation)
        if not self._owed.owed:
            self._owed.judge(self.checkpoints, self._saving.found)
            self._tell_listeners()

    def _look(self, validation: Validation) -> None:
        with self.watch.during(WatchPhase.VALIDATION):
            self._saving.found = dict(validation.run())
        self._owed.ran(validation)

    def _tell_listeners(self) -> None:
        if self.listeners and self._ranks.rank == 0:
            with self.watch.during(WatchPhase.VALIDATION):
                self._callbacks.applied(self.state.step, self._moment)

    def _moment(self) -> Moment:
        loss, found = self._chronicle.loss, self._saving.found
        return Moment(position=self.state.position, step=self.state.step, loss=loss, metrics=found)

    def _follow(self, advice: Advice, why: str) -> None:
        if advice in {Advice.ROLL_BACK, Advice.STOP_STUCK}:
            self._go_back(why)
        elif advice is Advice.STOP_DROP_RATE:
            raise self._endings.dropped_too_much(advice, why)
        elif self._saving.ill is not None:
            self._go_back(f"{self._saving.ill} is not finite, although no step was refused")
        self._chronicle.watched()
        self._rate.look()

    def _go_back(self, why: str) -> None:
        """By whatever remedy is next; the run is at a healthy state afterwards, or at its end."""
        saved = self.checkpoints.position
        with self.watch.during(WatchPhase.CHECKPOINT):
            self._way_back().go_back(why, course=self._course, give_up=self._endings.stuck)
        self._samples.forget()
        self._saving.went_back(saved=saved)

    def _count_samples(self) -> None:
        """Before a snapshot or checkpoint, so that each holds the whole count; the same on all ranks."""
        advice, why = self.breaker.saw(**self._samples.settled())
        self._samples.tell(self.degradations)
        if advice is Advice.GO_ON:
            advice, why = self._samples.advice()
        if advice is not Advice.GO_ON:
            raise self._endings.dropped_too_much(advice, why)

    def _leave_if_told(self) -> None:
        why = self.told()
        if why is not None:
            self._count_samples()
            self._saving.keep_in_memory()
            with self.watch.during(WatchPhase.CHECKPOINT):
                error = save_and_leave(why, self.state, self.checkpoints, self._saving.metrics(), self._chronicle)
            if self.checkpoints.position == self.state.position:
                self._succession.leave_nothing()
            raise error

    def _save_if_asked(self) -> None:
        wishes = [] if self._asked is None else self._asked.wanted()
        if not wishes:
            return
        whys = "; ".join(dict.fromkeys(wish.why for wish in wishes))
        there, ids = self.checkpoints.position == self.state.position, [wish.id for wish in wishes]
        self._chronicle.tell("save_asked", whys, requests=ids, there=there)
        self._look_after_checkpoints()
        self._saving.keep_as_asked()
        if self._ranks.rank == 0:
            withdraw_wishes(self.desk.folder, wishes)
        if self._saving.ill is not None:
            self._go_back(f"{self._saving.ill} is not finite, although no step was refused")

    def _finished(self) -> bool:
        """Whether the final state is published; False when there is more to do."""
        if self.state.position < self._course.total:
            return False
        if self._owed.owed:  # a finished run is not taken up again, and nobody would make up for the look
            self._leave_if_told()
        self._count_samples()
        if self._saving.publish_final():
            return True
        self._go_back(f"{self._saving.ill} is not finite in the final state")
        return False

    def _end(self) -> None:
        self.breaker.life.move(RunState.FINISHED, why=f"all {self._course.total} batches are consumed")
        self._chronicle.finished()
        self._succession.leave_nothing()
