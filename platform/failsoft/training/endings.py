"""How a run ends that cannot go on: the diagnosis, the report beside it, the last words. Raising is the loop's part."""

from __future__ import annotations

from dataclasses import dataclass, replace

from failsoft.errors import DropRateError, NoProgressError, NoSnapshotError, TrainingError
from failsoft.training.batches import GlobalBatches
from failsoft.training.breaker import Advice, Breaker, RunState
from failsoft.training.chronicle import Chronicle, Desk
from failsoft.training.letters.deadletters import read_dead_letters
from failsoft.training.loop_plan import Task
from failsoft.training.ranks import Ranks
from failsoft.training.state import TrainingState
from failsoft.training.stop_report import REPORT_TEXT, StopReport, report_of
from failsoft.training.succession import Succession


@dataclass(kw_only=True)
class Endings:
    """Makes the error that ends a run, the same on all ranks; each is in the ledger before it is raised."""

    state: TrainingState
    task: Task
    batches: GlobalBatches
    breaker: Breaker
    chronicle: Chronicle
    desk: Desk
    ranks: Ranks
    succession: Succession

    def stuck(self, why: str) -> TrainingError:
        """Every remedy was tried."""
        tried = "; then ".join(entry.in_words() for entry in self.breaker.history)
        return self._given_up(NoProgressError, f"{Advice.STOP_STUCK}: {why}; tried: {tried}")

    def dropped_too_much(self, advice: Advice, why: str) -> TrainingError:
        """Too many batches were refused, or samples skipped."""
        return self._given_up(DropRateError, f"{advice}: {why}")

    def ill_at_start(self, tensor: str) -> TrainingError:
        """The state is ill before the first step."""
        said = (
            f"{tensor} is not finite before the first step, so there is no state to go back to or to publish; start "
            "from finite weights, and write a mask as a large negative number instead of an infinite one"
        )
        self.succession.leave_nothing()
        return self.stopped(NoSnapshotError(said))

    def stopped(self, error: TrainingError) -> TrainingError:
        """By this diagnosis."""
        self.breaker.life.move(RunState.STOPPED, why=str(error))
        self.chronicle.stopped(error)
        return error

    def _given_up(self, kind: type[TrainingError], why: str) -> TrainingError:
        report = self._report()
        diagnosis = (
            f"{why}; at position {self.state.position}, step {self.state.step}. {report.headline()} See "
            f"{self.desk.folder / REPORT_TEXT} and: failsoft dlq ls. When the data is mended, start a new run (this "
            "one would go on from its last checkpoint, with the same data)"
        )
        self.succession.leave_nothing()
        self.chronicle.reported(lambda: replace(report, diagnosis=diagnosis).write(self.desk.folder))
        return self.stopped(kind(diagnosis))

    def _report(self) -> StopReport:
        """Rank 0 reads all letters when all ranks have written theirs."""
        self.ranks.gather("letters are written")
        letters = read_dead_letters(self.chronicle.letters_folder)
        return report_of(letters, task=self.task, num_samples=self.batches.num_samples)
