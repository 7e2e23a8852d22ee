"""Carries a plan out on a subject: the quiet run, each fault alone, some together, and failing ones made smaller."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from failsoft.drills.fault import DrillFault, PlannedFault
from failsoft.drills.matrix import Matrix, Shrunk
from failsoft.drills.outcome import Outcome, not_tried
from failsoft.drills.plan import Trial, alone, combinations, widest_first
from failsoft.drills.shrinking import shrink
from failsoft.drills.subject import Reference, Subject
from failsoft.errors import ConfigError, FailsoftError
from failsoft.health.clock import Clock

Watch = Callable[[str], object]
"""Told what goes on, one line each."""


@dataclass(frozen=True, kw_only=True)
class SuitePlan:
    """What is tried."""

    kinds: tuple[DrillFault, ...]
    seed: int = 0
    combinations: int = 3
    """How many sets of two or three faults."""
    most_shrinking: int = 12
    """Trials that are spent on making one failing set smaller."""
    within_s: float = math.inf
    """No trial is begun that would end later, as long as the longest so far; counted from the run without a fault."""

    def __post_init__(self) -> None:
        """Refuse a plan without faults."""
        if not self.kinds:
            raise ConfigError("a drill without faults tries nothing; name some, or leave --fault out for all")
        if self.combinations < 0 or self.most_shrinking < 0 or self.seed < 0:
            raise ConfigError(
                f"combinations {self.combinations}, most_shrinking {self.most_shrinking}, seed {self.seed}: "
                "use 0 or more"
            )
        if not self.within_s > 0.0:
            raise ConfigError(
                f"within_s is {self.within_s}; use more than 0 seconds, or math.inf for all that it takes"
            )


class Suite:
    """One drill of one subject. Its folder keeps the trials that did not survive."""

    def __init__(self, subject: Subject, folder: Path, clock: Clock, watch: Watch = lambda _line: None) -> None:
        self._subject = subject
        self._folder = folder.resolve()
        self._clock = clock
        self._watch = watch
        self._numbers = count(1)
        self._ends_s, self._longest_s = math.inf, 0.0
        self._outcomes: list[Outcome] = []
        self._shrunk: list[Shrunk] = []

    def run(self, plan: SuitePlan, *, device: str) -> Matrix:
        """Try everything, and close the subject.

        Args:
            plan: what.
            device: where it runs, in words.
        """
        began_s = self._clock.monotonic_s()
        self._ends_s = began_s + plan.within_s
        try:
            self._watch(f"{self._subject.name}: the run without a fault")
            reference = self._subject.reference(self._new("reference"))
            if reference.good:
                self._carry_out(plan)
        finally:
            self._subject.close()
        return self._matrix(plan, reference, device, self._clock.monotonic_s() - began_s)

    def _matrix(self, plan: SuitePlan, reference: Reference, device: str, seconds: float) -> Matrix:
        return Matrix(
            subject=self._subject.name,
            side=self._subject.side,
            seed=plan.seed,
            device=device,
            reference=reference,
            outcomes=tuple(self._outcomes),
            shrunk=tuple(self._shrunk),
            seconds=seconds,
            notes=tuple(getattr(self._subject, "notes", ())),
        )

    def _carry_out(self, plan: SuitePlan) -> None:
        """Together only what survived alone: with a fault that did not, a combination says nothing new."""
        trials = alone(self._subject, plan.kinds, seed=plan.seed)
        hurried = math.isfinite(plan.within_s)
        found = {trial: self._tried(trial) for trial in (widest_first(trials) if hurried else trials)}
        self._outcomes = [found[trial] for trial in trials]
        able = {(one.faults[0].kind, one.faults[0].phase) for one in self._outcomes if one.good}
        drawn = combinations(self._subject, plan.kinds, seed=plan.seed, count=plan.combinations, able=able)
        for trial in drawn:
            outcome = self._tried(trial)
            self._outcomes.append(outcome)
            if outcome.survived is False:
                self._make_smaller(trial, plan.most_shrinking)

    def _make_smaller(self, failed: Trial, most: int) -> None:
        """Only what is known to fail counts as failing still: an undecided trial shrinks nothing."""
        before = next(self._numbers)
        smallest = shrink(failed, lambda faults: self._tried(tuple(faults)).survived is False, most_trials=most)
        self._shrunk.append(Shrunk(faults=failed, smallest=smallest, trials=next(self._numbers) - before - 1))

    def _tried(self, trial: Trial) -> Outcome:
        for fault in trial:
            reason = self._subject.able(fault.kind, fault.phase)
            if reason is not None:
                return not_tried(trial, reason)
        if self._clock.monotonic_s() + self._longest_s > self._ends_s:
            return not_tried(trial, "its time was over; a longer --within, or --fault with its name, tries it")
        self._watch(f"{self._subject.name}: {_words(trial)}")
        try:
            outcome = self._subject.trial(trial, self._new(_name(trial)))
        except (FailsoftError, OSError) as error:  # the drill failed, not the subject: the others go on
            return Outcome(faults=trial, survived=None, seconds=0.0, why=f"the drill itself failed: {error}")
        self._longest_s = max(self._longest_s, outcome.seconds)
        return outcome

    def _new(self, name: str) -> Path:
        folder = self._folder / f"{next(self._numbers):03d}-{name}"
        folder.mkdir(parents=True)
        return folder


def _words(trial: Sequence[PlannedFault]) -> str:
    return " and ".join(str(fault) for fault in trial)


def _name(trial: Sequence[PlannedFault]) -> str:
    return "+".join(f"{fault.kind}-{fault.phase}" for fault in trial)[:80]
