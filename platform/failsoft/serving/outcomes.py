"""What the answers of one gateway replica amounted to, counted until the next report.

Counting is O(1) and never waits. A report that did not get through keeps its sequence number and is sent again, so
that the controller can drop what it has seen before; when it stays away for long, the oldest are given up and counted.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

from failsoft.errors import ConfigError
from failsoft.health.window import Outcome
from failsoft.serving.evidence import OutcomeBatch
from failsoft.serving.plan import Arm


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


@dataclass(kw_only=True)
class _Tally:
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    latency_ms: float = 0.0
    agree: int = 0
    compared: int = 0

    def add(self, seen: Seen) -> None:
        self.outcomes[seen.outcome] += 1
        self.latency_ms += seen.latency_ms
        if seen.agreed is not None:
            self.compared += 1
            self.agree += seen.agreed


class OutcomeBuffer:
    """Counts between two reports, and the reports that are not yet known to have arrived."""

    def __init__(self, gateway: str, *, max_unsent: int = 200) -> None:
        if max_unsent < 1:
            raise ConfigError(f"max_unsent is {max_unsent}; keep at least 1 report for the next try")
        self._gateway = gateway
        self._tallies: dict[tuple[int, Arm, bool], _Tally] = {}
        self._unsent: deque[OutcomeBatch] = deque()
        self._max_unsent = max_unsent
        self._sequence = 0
        self.given_up = 0
        """Reports that were dropped because too many had not arrived."""

    def record(self, seen: Seen) -> None:
        """Count one call."""
        self._tallies.setdefault((seen.epoch, seen.arm, seen.mirrored), _Tally()).add(seen)

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
            agree=tally.agree,
            compared=tally.compared,
        )
