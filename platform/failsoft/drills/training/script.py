"""A train script as the subject of a drill."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from failsoft.drills.catalogue import TRAINING, entry_of
from failsoft.drills.fault import DrillFault, Phase, PlannedFault, Side
from failsoft.drills.outcome import Outcome, not_tried
from failsoft.drills.subject import Reference
from failsoft.drills.training import end_look
from failsoft.drills.training.attempt import Patience
from failsoft.drills.training.command import TrainCommand
from failsoft.drills.training.damage import DAMAGING
from failsoft.drills.training.exactness import exactness_of
from failsoft.drills.training.folder_look import newest_large
from failsoft.drills.training.inside.orders import Event, Strike
from failsoft.drills.training.inside.trouble import DISK_KINDS
from failsoft.drills.training.judgement import OF_A_BATCH, SAME, Allowance, Evidence, judge
from failsoft.drills.training.launch import ColdStarts, Launcher, WarmStarts
from failsoft.drills.training.mends import mend_of
from failsoft.drills.training.points import Observed, observed, point_of
from failsoft.drills.training.seen import ledger_events, what_was_seen
from failsoft.drills.training.trial import Bench, Trial
from failsoft.errors import TrainingError
from failsoft.health.clock import Clock

_LEAST_STILL_S = 10.0


@dataclass(frozen=True, kw_only=True)
class ScriptOptions:
    """How a script is drilled."""

    results: tuple[str, ...] = ()
    """Files below the run's folder that belong to the end state, beside the weights of what was trained."""
    checkpoint: str | None = None
    """Pattern of the files that a restart reads; None: the newest large one."""
    warm: bool = True
    """Start by forks of a process that has loaded what the script loads, where that process has one thread."""
    still_s: float | None = None
    """A run without a sign of life for so long is ended as a user would; None: as long as three quiet
    runs, 10 s at least."""


class TrainScript:
    """Any train command. The quiet run is done twice: what differs between the two is no fault's doing."""

    def __init__(self, command: TrainCommand, folder: Path, clock: Clock, options: ScriptOptions | None = None) -> None:
        self._command = command
        self._folder = folder.resolve()
        self._clock = clock
        self._options = options or ScriptOptions()
        self._launcher: Launcher = ColdStarts(self._folder)
        self._met: Observed | None = None
        self._quiet: end_look.State = {}
        self._noise = 0.0
        self._usual: frozenset[str] = frozenset()
        self._odd: frozenset[str] = frozenset()
        self._without: dict[int, tuple[end_look.State, ...]] = {}
        self._still_s = self._options.still_s or _LEAST_STILL_S
        self.notes: list[str] = []
        """What a reader of the matrix must know of how it was made."""

    @property
    def name(self) -> str:
        """The script."""
        return self._command.name

    @property
    def side(self) -> Side:
        """Training."""
        return Side.TRAINING

    @property
    def kinds(self) -> tuple[DrillFault, ...]:
        """All of the training side."""
        return TRAINING

    def phases(self, kind: DrillFault) -> tuple[Phase, ...]:
        """As the catalogue has them."""
        return entry_of(kind, Side.TRAINING).phases

    def able(self, kind: DrillFault, phase: Phase) -> str | None:
        """None: it can be tried."""
        met = self._known()
        if kind is DrillFault.KILL_DRIVER and met.processes == 1:
            return "one process is both driver and worker here: see kill-worker"
        if kind in DISK_KINDS and met.save_key is None:
            return "the script saves nothing, so no disk matters to it"
        if kind in DAMAGING and newest_large(self._folder / "quiet" / "run", self._options.checkpoint) is None:
            return "the script leaves no file that a restart could read"
        if point_of(PlannedFault(kind=kind, phase=phase), met) is None:
            return _NO_PHASE[phase]
        return None

    def reference(self, folder: Path) -> Reference:
        """The quiet run, twice."""
        first = self._run(self._folder / "quiet", cold=True)
        seconds = first.attempts[-1].seconds
        ill = self._learn_from(first)
        if ill is not None:
            return Reference(good=False, why=ill[0], seconds=seconds, mend=ill[1])
        self._warm_up(first)
        self._still_s = self._options.still_s or 60.0
        second = self._run(folder / "quiet-again")
        self._still_s = self._options.still_s or max(_LEAST_STILL_S, 3.0 * second.attempts[-1].seconds)
        if second.attempts[-1].backwards != first.attempts[-1].backwards:
            return _unlike(first, second)
        state = self._end_of(second)
        self._noise = 0.0 if state is None else end_look.distance(state, self._quiet)
        met = self._known()
        why = f"{met.backwards} steps, {met.looks} looks without gradients, saves: {met.save_key or 'none'}"
        if not self._noise <= SAME:
            why += f"; two quiet runs end {self._noise:.2g} apart, and what differs less can't be told: seed the script"
        return Reference(good=True, why=why, seconds=second.attempts[-1].seconds)

    def trial(self, faults: Sequence[PlannedFault], folder: Path) -> Outcome:
        """Under all these faults."""
        planned = tuple(faults)
        strikes = []
        for number, fault in enumerate(planned):
            reason = self.able(fault.kind, fault.phase)
            point = point_of(fault, self._known())
            if reason is not None or point is None:
                return not_tried(planned, f"{fault}: {reason}")
            strikes.append(Strike(fault=fault, trigger=point, name=f"{number}-{fault.kind}"))
        began_s = self._clock.monotonic_s()
        trial = self._run(folder / "trial", strikes)
        evidence = self._evidence(trial, strikes)
        word = judge(evidence)
        outcome = Outcome(
            faults=planned,
            survived=word.survived,
            seconds=self._clock.monotonic_s() - began_s,
            why="; ".join([word.why, *trial.done]),
            lost=evidence.exact.lost,
            repeated=evidence.exact.repeated,
            torn=len(evidence.torn),
            left=sum(len(attempt.left) for attempt in trial.attempts),
            again=evidence.again,
            seen=what_was_seen(trial.run, trial.attempts, self._usual),
            mend="" if word.survived else mend_of(planned[0].kind),
        )
        if outcome.good:
            shutil.rmtree(trial.folder, ignore_errors=True)
        return outcome

    def close(self) -> None:
        """End the process that others are forked from."""
        self._launcher.close()

    def _known(self) -> Observed:
        if self._met is None:
            raise TrainingError("the quiet run comes first: call reference() before any trial")
        return self._met

    def _run(
        self,
        folder: Path,
        strikes: Sequence[Strike] = (),
        *,
        leave_out: int | None = None,
        rewinds: bool = False,
        cold: bool = False,
    ) -> Trial:
        bench = Bench(
            command=self._command,
            launcher=ColdStarts(self._folder) if cold else self._launcher,
            patience=Patience(still_s=60.0 if cold and self._met is None else self._still_s),
            clock=self._clock,
            checkpoint=self._options.checkpoint,
        )
        due = 0 if self._met is None else self._met.backwards
        below = "" if self._met is None else self._met.saved_below
        trial = Trial(
            bench=bench, folder=folder, strikes=strikes, leave_out=leave_out, rewinds=rewinds, below=below, due=due
        )
        trial.carry_out()
        return trial

    def _end_of(self, trial: Trial) -> end_look.State | None:
        return end_look.end_state(trial.marks, trial.run, self._options.results, start=len(trial.attempts))

    def _learn_from(self, quiet: Trial) -> tuple[str, str] | None:
        """Remember the quiet run; else what is wrong with it, and the mend."""
        last = quiet.attempts[-1]
        if last.status != 0 or last.hung or last.left:
            ended = f"left behind {last.left[0]}" if last.left else f"ended with exit status {last.status}"
            how = "stood still" if last.hung else ended
            return f"without any fault it {how}: {last.last_words}", f"its output: {quiet.folder / 'output.log'}"
        self._met = observed(quiet.marks.read(), quiet.marks.counts())
        if self._met.backwards == 0:
            return "no gradients were computed by torch in any of its processes", "give a script that trains with torch"
        absent = [name for name in self._options.results if not (quiet.run / name).is_file()]
        if absent:
            return f"it leaves no file {absent[0]} in the run's folder", f"look into {quiet.run}, and mend --result"
        state = self._end_of(quiet)
        if state is None:
            return "no weights were found when it ended", "name the files of its result: --result weights.pt"
        if not end_look.finite(state):
            return "without any fault its weights are not finite", "mend the script first"
        self._quiet = state
        self._odd = frozenset(quiet.torn)
        self._usual = frozenset(event.kind for event in ledger_events(quiet.run))
        return None

    def _warm_up(self, quiet: Trial) -> None:
        if not (self._options.warm and self._command.is_python):
            self.notes.append("each start is a new interpreter")
            return
        loaded = [name for mark in quiet.marks.read() if mark["what"] == "end" for name in mark["modules"]]
        try:
            self._launcher = WarmStarts(self._folder, tuple(dict.fromkeys(["torch", *loaded])))
            self.notes.append(
                "starts are forks of a process that has loaded the script's packages; --cold does without"
            )
        except TrainingError as error:
            self.notes.append(f"each start is a new interpreter: {error}")

    def _evidence(self, trial: Trial, strikes: Sequence[Strike]) -> Evidence:
        state = self._end_of(trial)
        without = [self._states_without(strike) for strike in strikes if _is_of_a_batch(strike)]
        moves = [max(end_look.distance(other, self._quiet) for other in states) for states in without if states]
        only = without[0] if len(without) == 1 and state is not None else ()
        return Evidence(
            kinds=frozenset(strike.fault.kind for strike in strikes),
            struck=trial.struck,
            planned=len(strikes),
            attempts=tuple(trial.attempts),
            due=self._known().backwards,
            torn=self._torn_by_the_fault(trial),
            exact=exactness_of(trial.run),
            is_finite=None if state is None else end_look.finite(state),
            distance=None if state is None else end_look.distance(state, self._quiet),
            without_batch=None if state is None else min((end_look.distance(state, one) for one in only), default=None),
            allowance=Allowance(noise=self._noise, batch=sum(moves) if moves else None),
        )

    def _torn_by_the_fault(self, trial: Trial) -> tuple[str, ...]:
        """What the quiet run leaves in no better state (lines of JSON in a .json file) is the script's own form."""
        odd = {_place(one) for one in self._odd}
        return tuple(one for one in trial.torn if _place(one) not in odd)

    def _states_without(self, strike: Strike) -> tuple[end_look.State, ...]:
        """Ends of quiet runs that leave out the update which this fault strikes: as it is, and as if it never came."""
        count = strike.trigger.count
        if count not in self._without:
            runs = [
                self._run(self._folder / f"without-{count}-{rewinds}", leave_out=count, rewinds=rewinds)
                for rewinds in (False, True)
            ]
            states = map(self._end_of, runs)
            self._without[count] = tuple(state for state in states if state is not None)
        return self._without[count]


def _unlike(first: Trial, second: Trial) -> Reference:
    """A run that finds what another one left is no trial: it may have nothing left to do."""
    steps, others = first.attempts[-1].backwards, second.attempts[-1].backwards
    return Reference(
        good=False,
        why=f"of two quiet runs one takes {steps} steps and the other {others}, so no trial can be compared",
        seconds=second.attempts[-1].seconds,
        mend="have it keep all its files in the run's folder, {run}, and take as many steps each time",
    )


def _place(torn: str) -> str:
    """The file of a line of :func:`torn_files`, as another run may name it."""
    return re.sub(r"\d+", "#", torn.partition(": ")[0])


def _is_of_a_batch(strike: Strike) -> bool:
    return strike.fault.kind in OF_A_BATCH and strike.trigger.event is Event.FORWARD


_NO_PHASE = {
    Phase.START: "the script has no start",
    Phase.FIRST_STEP: "the script takes no step",
    Phase.TRAINING: "the script takes one step only",
    Phase.SAVING: "the script saves nothing while it trains",
    Phase.VALIDATION: "the script never calls its model without gradients",
}
