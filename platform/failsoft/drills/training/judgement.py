"""Judges a trial of a train script from what was found. Pure; the first rule that speaks decides."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from failsoft.drills.fault import DrillFault
from failsoft.drills.training.attempt import Attempt
from failsoft.drills.training.exactness import Exactness

SAME = 1e-5
"""Two end states at no larger distance are the same: sums in another order differ by that much in float32."""
NEAR = 3.0
"""A refused batch may cost so many times what leaving that one batch out costs, and no more."""
_REFUSED = 0.25
"""Where batches are struck, so many of all steps may be left out; how far the weights may go is judged beside that."""
_KEPT_FROM = 0.25
"""A fault behind this share of the run must not cost everything that was done."""
_REFUSABLE = frozenset({DrillFault.NAN, DrillFault.INF, DrillFault.SPIKE, DrillFault.POISONED_SAMPLE})
"""Of these a batch may be refused: the end state is then that of a run without it."""
OF_A_BATCH = _REFUSABLE | {DrillFault.OUT_OF_MEMORY}
"""These strike one batch. What came of it is measured by how far a run without that batch goes."""


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """How far an end state may be from the quiet run's."""

    noise: float
    """How far two quiet runs are from each other."""
    batch: float | None = None
    """How far the run without the struck batch is from the quiet run; None: no batch may be missing."""

    @property
    def limit(self) -> float:
        """The largest distance that is borne."""
        return max(SAME, NEAR * self.noise, NEAR * (self.batch or 0.0))


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """All that was found of one trial."""

    kinds: frozenset[DrillFault]
    struck: frozenset[str]
    """Names of the faults that came to strike."""
    planned: int
    """How many were to."""
    attempts: tuple[Attempt, ...]
    due: int
    """Backward passes of the quiet run."""
    torn: tuple[str, ...]
    exact: Exactness
    is_finite: bool | None
    """None: no end state was found."""
    distance: float | None
    """From the quiet run; None: nothing to compare."""
    without_batch: float | None
    """From the run without the struck batch, the nearer of two; None: there is no such run."""
    allowance: Allowance

    @property
    def finished(self) -> bool:
        """Whether the last start ended well."""
        return bool(self.attempts) and self.attempts[-1].status == 0 and not self.attempts[-1].hung

    @property
    def again(self) -> int:
        """Backward passes beyond those of the quiet run."""
        return max(0, sum(attempt.backwards for attempt in self.attempts) - self.due)

    @property
    def short(self) -> int:
        """Backward passes that were never made, in any process of any start; 0: none that is known of.

        A net that refuses a struck batch may do without its passes, and without those of a poisoned sample each time.
        """
        missing = self.due - sum(attempt.passes for attempt in self.attempts)
        borne = self.due * _REFUSED if self.kinds & OF_A_BATCH else 0.0
        return missing if missing > borne else 0

    @property
    def thrown_away(self) -> int:
        """Steps of which nothing was kept: a later start began at the beginning."""
        if len(self.attempts) < 2 or self.attempts[-1].backwards < self.due:
            return 0
        done = max(attempt.backwards for attempt in self.attempts[:-1])
        return done if done >= _KEPT_FROM * self.due else 0


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The word on one trial."""

    survived: bool | None
    why: str


Rule = Callable[[Evidence], Judgement | None]


def judge(evidence: Evidence) -> Judgement:
    """The first rule that has something to say; the last one always has."""
    for rule in _RULES:
        said = rule(evidence)
        if said is not None:
            return said
    return _survived(evidence)


def _never_struck(found: Evidence) -> Judgement | None:
    if len(found.struck) >= found.planned:
        return None
    why = f"{found.planned - len(found.struck)} of {found.planned} faults never came to strike, so nothing is known"
    return Judgement(survived=None, why=why) if found.finished else None


def _unfinished(found: Evidence) -> Judgement | None:
    if found.finished:
        return None
    last = found.attempts[-1]
    how = "stands still" if last.hung else f"ends with status {last.status}"
    return _lost(f"the same command does not finish any more: after {len(found.attempts)} starts it still {how}")


def _hung(found: Evidence) -> Judgement | None:
    still = next((attempt for attempt in found.attempts if attempt.hung), None)
    return (
        None
        if still is None
        else _lost(f"it stood still and nobody noticed; ended by hand after {still.seconds:.0f} s")
    )


def _left_behind(found: Evidence) -> Judgement | None:
    left = [words for attempt in found.attempts for words in attempt.left]
    return _lost(f"left behind: {left[0]}") if left else None


def _torn(found: Evidence) -> Judgement | None:
    return _lost(f"a visible file was torn: {found.torn[0]}") if found.torn else None


def _inexact(found: Evidence) -> Judgement | None:
    if found.exact.lost or found.exact.repeated:
        return _lost(f"{found.exact.lost} samples were never seen, {found.exact.repeated} are in the weights twice")
    if found.exact.unreadable:
        return Judgement(survived=None, why=f"the record of consumed samples can't be read: {found.exact.unreadable}")
    return None


def _cut_short(found: Evidence) -> Judgement | None:
    """It ended well and did not do what it was asked: a noisy script's weights may hide that."""
    done = found.due - found.short
    return _lost(f"it called itself done after {done} of {found.due} steps") if found.short else None


def _not_finite(found: Evidence) -> Judgement | None:
    if found.is_finite is None:
        return Judgement(survived=None, why="it ended well, and left no weights to compare; name them with --result")
    return None if found.is_finite else _lost("it ended well, with weights that are not finite")


def _elsewhere(found: Evidence) -> Judgement | None:
    if found.distance is None or math.isnan(found.distance):
        return Judgement(survived=None, why="its end state and the quiet run's have nothing in common to compare")
    if not found.allowance.noise < 0.1:
        why = f"two quiet runs end {found.allowance.noise:.2g} apart, so no end state says anything; seed the script"
        return Judgement(survived=None, why=why)
    least = min(found.distance, math.inf if found.without_batch is None else found.without_batch)
    if least <= found.allowance.limit or found.distance <= found.allowance.limit:
        return None
    return _lost(
        f"it ended with other weights than the quiet run: {found.distance:.2g} away, "
        f"{found.allowance.limit:.2g} is borne"
    )


def _left_out(found: Evidence) -> Judgement | None:
    """Memory is no reason to leave a sample out; a batch in pieces moves weights a little (batch norm, dropout)."""
    if (
        DrillFault.OUT_OF_MEMORY not in found.kinds
        or found.kinds & _REFUSABLE
        or found.without_batch is None
        or found.distance is None
    ):
        return None
    same = max(SAME, NEAR * found.allowance.noise)
    return _lost("the batch that did not fit was left out") if found.without_batch <= same < found.distance else None


def _thrown_away(found: Evidence) -> Judgement | None:
    done = found.thrown_away
    return _lost(f"nothing of {done} steps was kept: it began from the beginning") if done else None


def _survived(found: Evidence) -> Judgement:
    distance = found.distance or 0.0
    if not found.allowance.noise <= SAME and distance <= NEAR * found.allowance.noise:
        said = f"weights {distance:.2g} from the quiet run's, as two quiet runs are {found.allowance.noise:.2g} apart"
    elif distance <= SAME:
        said = "the same weights as the quiet run"
    elif found.without_batch is not None and found.without_batch <= max(SAME, NEAR * found.allowance.noise):
        said = "the weights of the quiet run without that batch"
    else:
        said = (
            f"weights {distance:.2g} from the quiet run's; leaving the batch out moves them {found.allowance.batch:.2g}"
        )
    starts = f", {len(found.attempts)} starts" if len(found.attempts) > 1 else ""
    again = f", {found.again} steps done again" if found.again else ""
    record = ", each sample once by the run's record" if found.exact.runs else ""
    return Judgement(survived=True, why=f"{said}{record}{starts}{again}")


def _lost(why: str) -> Judgement:
    return Judgement(survived=False, why=why)


_RULES: tuple[Rule, ...] = (
    _unfinished,
    _never_struck,
    _hung,
    _left_behind,
    _torn,
    _inexact,
    _cut_short,
    _not_finite,
    _elsewhere,
    _left_out,
    _thrown_away,
)
