"""What the answers of one gateway replica amounted to, counted until the next report.

Counting is O(1) and never waits. A report that did not get through keeps its sequence number and is sent again, so
that the controller can drop what it has seen before; when it stays away for long, the oldest are given up and counted.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from failsoft.errors import ConfigError
from failsoft.health.monitor import BAD
from failsoft.health.window import Outcome
from failsoft.serving.plan.plan import Arm
from failsoft.serving.watching.answer_memory import Given
from failsoft.serving.watching.batch import LABELLED, SLOW, TIMED, WRONG, OutcomeBatch
from failsoft.serving.watching.beside import NOTHING_BESIDE, Beside

_MAX_NOTED = 16
"""Callers who brought something bad are reported apart from the others; at most so many."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """How one call of a model ended."""

    epoch: int
    """The plan under which the call was made."""
    arm: Arm
    outcome: Outcome
    latency_ms: float
    mirrored: bool = False
    rescue: bool = False
    """The stand-in was asked because the subject's answer would not do: an unfair sample, so no evidence."""
    agreed: bool | None = None
    """Whether a mirrored answer has the live answer's intent; None when nothing was compared."""
    beside: Beside = NOTHING_BESIDE
    """A mirrored answer beside the live one: confidence and time."""
    model_ms: float = math.nan
    """The model's own time for the call that carried the answer; NaN: unknown."""
    together: int = 1
    """Answers that this call carried."""
    label: str = ""
    """What is counted to see whether the mix of answers drifts; empty: nothing is."""
    oov_share: float = math.nan
    """Share of the item that training never saw; NaN: unknown."""
    words: float = math.nan
    """How long the item is; NaN: unknown."""
    confidence: float = math.nan
    """Of the answer; NaN: it has no honest one."""
    entropy: float = math.nan
    """As a fraction of the largest possible; NaN: unknown."""
    margin: float = math.nan
    """Between the two most probable answers; NaN: unknown."""
    repaired: bool = False
    """The text had to be mended before the model could read it."""
    caller: int | None = None
    """Number of whose request it was; None: nobody knows."""
    given: Given | None = None
    """What a label that comes later will be held against; None: nothing that a caller was given."""


@dataclass(kw_only=True)
class _Tally:
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    callers: dict[int, Counter[str]] = field(default_factory=dict)
    """The part of callers who are known to have brought something bad lately."""
    latency_ms: float = 0.0
    slow: int = 0
    timed: int = 0
    wrong: int = 0
    labelled: int = 0
    agree: int = 0
    compared: int = 0
    beside: Beside = NOTHING_BESIDE

    def add(self, seen: Seen, *, slow: bool | None, apart: bool) -> None:
        self.outcomes[seen.outcome] += 1
        self.latency_ms += seen.latency_ms
        self.timed += slow is not None
        self.slow += bool(slow)
        if apart and seen.caller is not None:
            part = self.callers.setdefault(seen.caller, Counter())
            part[seen.outcome] += 1
            part[TIMED] += slow is not None
            part[SLOW] += bool(slow)
        if seen.agreed is not None:
            self.compared += 1
            self.agree += seen.agreed
        if seen.beside.answers:
            self.beside += seen.beside


class OutcomeBuffer:
    """Counts between two reports, and the reports that are not yet known to have arrived.

    Args:
        gateway: told with each report.
        max_unsent: more reports than these that have not arrived are given up, the oldest first.
    """

    def __init__(self, gateway: str, *, max_unsent: int = 200) -> None:
        if max_unsent < 1:
            raise ConfigError(f"max_unsent is {max_unsent}; keep at least 1 report for the next try")
        self._gateway = gateway
        self._tallies: dict[tuple[int, Arm, bool], _Tally] = {}
        self._unsent: deque[OutcomeBatch] = deque()
        self._max_unsent = max_unsent
        self._sequence = 0
        self._noted: dict[int, None] = {}
        self.given_up = 0
        """Reports that were dropped because too many had not arrived."""
        self.on_record: Callable[[bool], None] | None = None
        """Told whenever something was counted, and whether it speaks against the model; returns at once."""

    def record(self, seen: Seen, *, slow: bool | None = None) -> None:
        """Count one call; ``slow``: whether the model took too long for its release, None where that is unknown.

        Callers whose calls all went well travel together, so a report stays small however many callers there are.
        """
        tally = self._tallies.get((seen.epoch, seen.arm, seen.mirrored))
        if tally is None:
            tally = self._tallies[seen.epoch, seen.arm, seen.mirrored] = _Tally()
        bad = seen.outcome is not Outcome.GOOD and seen.outcome in BAD
        if seen.caller is not None and (slow or bad):
            self._note(seen.caller)
        tally.add(seen, slow=slow, apart=bool(self._noted) and seen.caller in self._noted)
        if self.on_record is not None:
            self.on_record(bad)

    def label(self, *, epoch: int, arm: Arm, mirrored: bool, right: bool, caller: int | None) -> None:
        """Count an answer whose label has come, under the plan in which its weights are loaded now."""
        tally = self._tallies.setdefault((epoch, arm, mirrored), _Tally())
        tally.labelled += 1
        tally.wrong += not right
        if caller is not None and not right:
            self._note(caller)
        if caller is not None and caller in self._noted:
            part = tally.callers.setdefault(caller, Counter())
            part[LABELLED] += 1
            part[WRONG] += not right
        if self.on_record is not None:
            self.on_record(not right)

    def _note(self, caller: int) -> None:
        """Remember who brought something bad; the one who did so longest ago is forgotten for it."""
        self._noted.pop(caller, None)
        self._noted[caller] = None
        if len(self._noted) > _MAX_NOTED:
            forgotten = next(iter(self._noted))
            del self._noted[forgotten]
            for tally in self._tallies.values():
                tally.callers.pop(forgotten, None)

    def pending(self) -> tuple[OutcomeBatch, ...]:
        """Every report that is due, oldest first; the same ones again until :meth:`arrived`."""
        for (epoch, arm, mirrored), tally in self._tallies.items():
            self._unsent.append(self._batch(epoch, arm, mirrored=mirrored, tally=tally))
        self._tallies.clear()
        while len(self._unsent) > self._max_unsent:
            self._unsent.popleft()
            self.given_up += 1
        return tuple(self._unsent)

    def arrived(self, batches: tuple[OutcomeBatch, ...]) -> None:
        """Forget reports that the controller has taken."""
        taken = {batch.sequence for batch in batches}
        self._unsent = deque(batch for batch in self._unsent if batch.sequence not in taken)

    def _batch(self, epoch: int, arm: Arm, *, mirrored: bool, tally: _Tally) -> OutcomeBatch:
        self._sequence += 1
        return OutcomeBatch(
            gateway=self._gateway,
            sequence=self._sequence,
            epoch=epoch,
            arm=arm,
            mirrored=mirrored,
            outcomes=dict(tally.outcomes),
            latency_ms=tally.latency_ms,
            slow=tally.slow,
            timed=tally.timed,
            wrong=tally.wrong,
            labelled=tally.labelled,
            callers={caller: dict(part) for caller, part in tally.callers.items()},
            agree=tally.agree,
            compared=tally.compared,
            beside=tally.beside,
        )
