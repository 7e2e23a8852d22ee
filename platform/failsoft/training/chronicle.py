"""What a run leaves for people: ledger events, dead letters, progress. Rank 0 speaks for all; each rank has letters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from failsoft.errors import FailsoftError
from failsoft.health.clock import Clock
from failsoft.health.faults import Fault, FaultPlan
from failsoft.health.ledger import Ledger
from failsoft.health.lifecycle import Move
from failsoft.training.accounting.consumed import ConsumedRecord
from failsoft.training.breaker import Breaker, RunState, rate_in_words
from failsoft.training.checkpoints.checkpoint import Restored
from failsoft.training.course import Course
from failsoft.training.escalation import Remedy
from failsoft.training.guard import StepOutcome
from failsoft.training.letters.deadletters import LetterPolicy
from failsoft.training.letters.letter_office import LetterOffice
from failsoft.training.progress import Phase, PositionMark, Progress, ProgressFile, read_progress
from failsoft.training.ranks import Ranks
from failsoft.training.snapshots.snapshot import RamSnapshots
from failsoft.training.state import TrainingState

_LOSS_MEMORY = 0.95


@dataclass(frozen=True, kw_only=True)
class Desk:
    """Where a run writes, and what is planned to go wrong in it."""

    folder: Path
    """The run's folder."""
    ledger: Ledger
    clock: Clock
    faults: FaultPlan = field(default_factory=FaultPlan)
    letters: LetterPolicy = field(default_factory=LetterPolicy)
    """How much is kept of dead batches."""
    record_consumed: bool = False
    """Write down the ids of all batches, so that ``failsoft verify`` can judge the run."""


@dataclass(frozen=True, kw_only=True)
class WayBack:
    """Where a run stood when it turned back."""

    position: int
    step: int
    burst: int
    """Batches in a row that were refused just before."""


class Chronicle:
    """Writes the story of one rank. Judges nothing and changes nothing in the run."""

    def __init__(self, desk: Desk, state: TrainingState, breaker: Breaker, letters: LetterOffice) -> None:
        self._desk = desk
        self._state = state
        self._breaker = breaker
        self._ranks: Ranks = letters.ranks
        self._leads = self._ranks.rank == 0
        self._letters = letters
        letters.on_lost = self._lost
        self._file = ProgressFile(desk.folder, desk.clock)
        self._progress = Progress(phase=Phase.TRAINING)
        self._set_mark: Callable[[int], None] = _nowhere
        self._resumes = False
        self._warned: set[str] = set()
        self._speechless = False
        self._began_s = 0.0
        self._held_bytes = 0
        self._consumed: ConsumedRecord | None = None
        if desk.record_consumed:
            self._consumed = ConsumedRecord(desk.folder, self._ranks, on_lost=self._lost)

    @property
    def letters_folder(self) -> Path:
        """Where the dead letters lie."""
        return self._letters.folder

    @property
    def loss(self) -> float | None:
        """Running mean of the loss over recent applied steps; None before the first."""
        return self._progress.loss

    def arrived(self) -> None:
        """All workers stand; the state is read next."""
        if self._leads:
            self._desk.ledger.record("workers_up", "the state is read next", world=self._ranks.world)

    def started(self, restored: Restored | None, *, course: Course, identity_digest: str) -> None:
        """A group of workers begins, at the start or at a checkpoint."""
        if self._consumed is not None:
            planned = course.planned
            self._consumed.begin(position=self._state.position, batches=course.batches, total_batches=planned)
        self._letters.resumed(self._state.position)
        if not self._leads:
            return
        before, reached = read_progress(self._desk.folder), PositionMark(self._desk.folder).read()
        attempt = 1 if before is None else before.attempt + 1
        repeated = max(0, (reached or 0) - self._state.position)
        self._progress = replace(self._progress, attempt=attempt, total=course.total)
        self._resumes = reached is not None
        self.tell(
            "run_started",
            "from the beginning" if restored is None else f"from {restored.name}",
            attempt=attempt,
            total_batches=course.total,
            world=self._ranks.world,
            config_digest=identity_digest,
            repeated_batches=repeated,
            rollbacks=self._breaker.rollbacks,
            last_seen_s=PositionMark(self._desk.folder).last_set_s(),
        )
        if restored is not None:
            data = {"checkpoint": restored.name, "source": restored.source, "repeated_batches": repeated}
            self.tell("restored", "newest whole and healthy", **data)
        self._put_down(lambda: self._file.write(self._look()))

    @contextmanager
    def marking(self) -> Iterator[None]:
        """Keep the exact position on disk for the time of the block."""
        if not self._leads:
            yield
            return
        with PositionMark(self._desk.folder).open() as self._set_mark:
            yield
        self._set_mark = _nowhere

    def begins(self, position: int) -> None:
        """The batch at ``position`` is about to be worked on."""
        self._set_mark(position)
        self._began_s = self._desk.clock.monotonic_s()
        if self._leads:
            self._put_down(lambda: self._file.offer(self._look))

    def planned(self, fault: Fault) -> None:
        """A planned fault strikes now; each rank tells its own, since it may be its last word."""
        self._desk.ledger.record(
            "planned_fault", "from the plan", fault=fault.kind, position=fault.position, rank=fault.rank
        )

    def consumed(self, outcome: StepOutcome) -> None:
        """A batch was worked on; told before anything follows from it."""
        if self._consumed is not None:
            self._consumed.batch(outcome.position, outcome.sample_ids, applied=outcome.applied)

    def applied(self, outcome: StepOutcome) -> None:
        """An update happened."""
        loss, before = outcome.mean_loss, self._progress.loss
        mean = loss if before is None else _LOSS_MEMORY * before + (1.0 - _LOSS_MEMORY) * loss
        self._progress = replace(self._progress, loss=mean)
        if self._resumes:
            self._resumes = False
            self.tell("resumed", "first update of this attempt")

    def refused(self, outcome: StepOutcome) -> None:
        """A batch left no trace but this."""
        letter = self._letters.refused(outcome, step=self._state.step)
        if self._leads:
            details = self._letters.event_data(letter)
            details["took_s"] = round(self._desk.clock.monotonic_s() - self._began_s, 6)
            details |= {"in_a_row": self._breaker.in_a_row, "rollbacks": self._breaker.rollbacks}
            self.tell("batch_refused", letter.reason, **details)

    def rolled_back(self, why: str, *, before: WayBack, to: int, remedy: Remedy, replays: bool) -> None:
        """The state is that of position ``to`` again; the position moved on, or the stretch is met again."""
        if self._consumed is not None:
            self._consumed.rolled_back(at=before.position, to=to)
        if replays:
            self._letters.resumed(to)
        self.tell(
            "rolled_back",
            why,
            position=before.position,
            step_before=before.step,
            step_after=self._state.step,
            undone_steps=before.step - self._state.step,
            snapshot_position=to,
            refused_in_burst=before.burst,
            remedy=remedy.name.lower(),
            replayed_from=to if replays else None,
            rollbacks=self._breaker.rollbacks,
            reproduction=self._letters.record_of_state() if self._leads else None,
        )

    def buried(self, positions: Iterable[int], course: Course) -> None:
        """The updates of these batches were undone by a rollback: each leaves a letter, but for refused ones."""
        for position in positions:
            if not self._breaker.passes.was_refused(position):
                mine = course.share(position, self._ranks)
                self._letters.undone(position, mine.tolist(), step=self._state.step, undone_at=self._state.position)

    def passed_over(self, position: int) -> None:
        """A batch that was refused in two passes is not met a third time."""
        self._letters.again(position)
        why = "refused in two passes, passed over for good"
        self.tell("batch_refused", why, reason=why, position=position, rollbacks=self._breaker.rollbacks)

    def withdrew(self, name: str) -> None:
        """A checkpoint was removed because going back to its moment did not help: what led to it is undone."""
        self.tell("checkpoint_withdrawn", "going back to its moment did not help", name=name)

    def moved(self, move: Move[RunState]) -> None:
        """The run's state changed: one event for each move."""
        self.tell("run_moved", move.why, before=move.before, after=move.after)

    @contextmanager
    def handing_over(self) -> Iterator[None]:
        """Within the block the training thread waits until a checkpoint of this moment is taken over."""
        began_s = self._desk.clock.monotonic_s()
        if self._consumed is not None:
            self._consumed.saved(self._state.position)
        yield
        stall_s = round(self._desk.clock.monotonic_s() - began_s, 6)
        self.tell("checkpoint_handed_over", "the training goes on", stall_s=stall_s)

    def snapshot(self, snapshots: RamSnapshots, *, ill: str | None, took_s: float) -> None:
        """A snapshot was taken, or not, because the tensor of this name is ill; said when it takes other memory now."""
        if self._consumed is not None and ill is None:
            self._consumed.kept(self._state.position)
        if not self._leads:
            return
        scale = None if self._state.scaler is None else self._state.scaler.state_dict().get("scale")
        self._progress = replace(self._progress, loss_scale=scale, snapshot_s=took_s)
        if ill is not None:
            record = self._letters.record_of_state()
            self.tell("snapshot_withheld", f"{ill} is not finite", tensor=ill, reproduction=record)
        elif snapshots.held_bytes != self._held_bytes:
            self._held_bytes, memory = snapshots.held_bytes, snapshots.report()
            self.tell("snapshot_memory", str(memory), **memory.as_dict())

    def watched(self) -> None:
        """Say once when a rate goes above its warning level."""
        for unit, verdict in (("batches", self._breaker.drop_rate), ("samples", self._breaker.skip_rate)):
            if verdict.warning and unit not in self._warned:
                said = rate_in_words(verdict, unit)
                self.tell("drop_rate_warning", said, bad=verdict.bad, total=verdict.total, unit=unit)
            (self._warned.add if verdict.warning else self._warned.discard)(unit)

    def stopped(self, error: FailsoftError) -> None:
        """The run will not go on by itself."""
        self.tell("run_stopped", str(error), error=type(error).__name__)
        self._end(Phase.STOPPED)

    def reported(self, write: Callable[[], object]) -> None:
        """Write what explains a stop; rank 0 does."""
        if self._leads:
            self._put_down(write)

    def left(self, why: str, *, saved: bool) -> None:
        """All ranks leave before their next batch, because they were told to."""
        self.tell("preempted", why, saved=saved)
        self._end(Phase.STOPPED)

    def finished(self) -> None:
        """All batches are consumed."""
        self.tell(
            "run_finished", "all batches are consumed", refused=self._breaker.refused, rollbacks=self._breaker.rollbacks
        )
        self._end(Phase.TRAINING)  # evaluation comes next; whoever does it turns the phase

    def tell(self, kind: str, why: str, **data: object) -> None:
        """Record an event that all ranks agree on: rank 0 does, with position and step."""
        if self._leads:
            self._desk.ledger.record(kind, why, **({"position": self._state.position, "step": self._state.step} | data))

    def _end(self, phase: Phase) -> None:
        self._set_mark(self._state.position)
        if self._leads:
            self._put_down(lambda: self._file.write(replace(self._look(), phase=phase)))
        self._desk.ledger.settle()  # a worker of Ray's is ended from outside, whatever it still has to say

    def _put_down(self, write: Callable[[], object]) -> None:
        """A disk that takes no more words must not end the training that they are about; said once."""
        try:
            write()
        except OSError as error:
            self._lost(f"{error}; the progress is not written down, training goes on")

    def _lost(self, why: str) -> None:
        if not self._speechless:
            self.tell("words_lost", why)
        self._speechless = True

    def _look(self) -> Progress:
        return replace(
            self._progress,
            position=self._state.position,
            step=self._state.step,
            refused=self._breaker.refused,
            rollbacks=self._breaker.rollbacks,
        )


def _nowhere(_position: int) -> None:
    """Where positions go while nobody keeps them."""
