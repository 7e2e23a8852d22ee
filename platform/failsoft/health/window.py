"""A sliding window of outcomes with O(1) work for each record."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from enum import StrEnum

from failsoft.errors import ConfigError


class Outcome(StrEnum):
    """How one unit of work ended: one answer of a model, or one training step."""

    GOOD = "good"
    WEAK = "weak"
    """Answered, but not credibly: low confidence, not finite, malformed."""
    ERROR = "error"
    LATE = "late"
    """No answer within the deadline."""
    SHED = "shed"
    """Refused on purpose because of load; says nothing about the model."""
    BAD_INPUT = "bad_input"
    """The input was hopeless; says nothing about the model."""
    REFUSED = "refused"
    """A training step whose loss or gradient failed a gate."""


@dataclass(frozen=True, kw_only=True)
class WindowSnapshot:
    """Counts inside a window at one moment."""

    counts: dict[Outcome, int]

    @property
    def total(self) -> int:
        """How many outcomes the window holds."""
        return sum(self.counts.values())

    def count_of(self, outcomes: frozenset[Outcome]) -> int:
        """How many of the held outcomes are among ``outcomes``."""
        return sum(self.counts.get(outcome, 0) for outcome in outcomes)


class SlidingWindow:
    """The last ``size`` outcomes. They are counted when somebody asks: to record them must cost next to nothing."""

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ConfigError(f"window size is {size}; a window holds at least 1 outcome")
        self._size = size
        self._recent: deque[Outcome] = deque(maxlen=size)

    def __len__(self) -> int:
        return len(self._recent)

    def record(self, outcome: Outcome) -> Outcome | None:
        """Add one outcome; the oldest leaves when the window is full, and is returned."""
        recent = self._recent
        left = recent[0] if len(recent) == self._size else None
        recent.append(outcome)
        return left

    def snapshot(self) -> WindowSnapshot:
        """Counts now, by a walk over the window; later records do not change them."""
        return WindowSnapshot(counts=dict(Counter(self._recent)))

    def clear(self) -> None:
        """Forget everything, as after a change of plan or of weights."""
        self._recent.clear()
