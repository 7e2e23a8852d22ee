"""Who takes part in the incident race in simulated time, and how each chooses between the model and the fallback.

Failsoft itself stands in ``race_failsoft.py``. pybreaker is the package. The window is what most articles on fallbacks
show. The redeployments judge nothing: an alert rule over the answers' confidence orders the old image, which most teams
have.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Protocol

from pybreaker import CircuitBreaker, CircuitBreakerError, CircuitMemoryStorage

from failsoft.health.clock import ManualClock
from failsoft.health.window import Outcome
from tests.benchmarks.race_recording import Given


class By(StrEnum):
    """Who answers a caller."""

    MODEL = "model"
    FALLBACK = "fallback"


class Rival(Protocol):
    """One contender; asked once for each request, in order, by one clock."""

    @property
    def serves_in_full(self) -> bool:
        """Whether all callers meet the model now."""
        ...

    @property
    def loads(self) -> int:
        """How often the weights were read from disk, or the image was started, since the beginning."""
        ...

    @property
    def falls(self) -> int:
        """How often the model lost its callers, or was replaced."""
        ...

    def ask(self, key: str, answer: Callable[[], Given]) -> By:
        """Who answers the caller with this key; ``answer`` asks the model, and may be called once."""
        ...

    def pass_time(self) -> None:
        """Called after each step of the clock."""
        ...


class Window:
    """The sliding window of the articles: over a share of bad answers all callers get the fallback for a while.

    Args:
        clock: of the race.
        limit: share of weak answers among the last ``size`` from which it opens, from ``least`` answers on.
        cool_s: how long it stays open; then the window is empty, and all callers meet the model again.
        cutoff: also give the fallback's answer in place of a single one whose confidence is below 0.50.
    """

    size, least = 100, 20
    loads = 0

    def __init__(self, clock: ManualClock, *, limit: float = 0.2, cool_s: float = 30.0, cutoff: bool = False) -> None:
        self._clock, self._limit, self._cool_s, self._cutoff = clock, limit, cool_s, cutoff
        self._seen: deque[bool] = deque(maxlen=self.size)
        self._open_until_s = 0.0
        self.falls = 0

    @property
    def serves_in_full(self) -> bool:
        """See :class:`Rival`."""
        return self._clock.monotonic_s() >= self._open_until_s

    def ask(self, key: str, answer: Callable[[], Given]) -> By:
        """See :class:`Rival`."""
        if not self.serves_in_full:
            return By.FALLBACK
        given, seen = answer(), self._seen
        seen.append(given.outcome is not Outcome.GOOD)
        if len(seen) >= self.least and sum(seen) / len(seen) >= self._limit:
            self._open_until_s = self._clock.monotonic_s() + self._cool_s
            self.falls += 1
            seen.clear()
        return By.FALLBACK if self._cutoff and not given.usable else By.MODEL

    def pass_time(self) -> None:
        """See :class:`Rival`."""


class _WeakError(Exception):
    """How pybreaker is told of an answer that is not sure of itself."""


class _Storage(CircuitMemoryStorage):
    """pybreaker's own memory, by the race's clock: it reads the clock on the wall."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__("closed")
        self._clock, self._opened_s = clock, 0.0

    @property
    def opened_at(self) -> datetime | None:
        """When it opened, as long ago on the wall as by the race's clock."""
        return datetime.now(UTC) - timedelta(seconds=self._clock.monotonic_s() - self._opened_s)

    @opened_at.setter
    def opened_at(self, datetime: datetime) -> None:
        self._opened_s = self._clock.monotonic_s()


class Pybreaker:
    """The package around the model: five weak answers in a row open it for 30 s, then one call decides."""

    loads = 0

    def __init__(self, clock: ManualClock, *, failures: int = 5, rest_s: float = 30.0) -> None:
        self._breaker = CircuitBreaker(fail_max=failures, reset_timeout=rest_s, state_storage=_Storage(clock))
        self.falls = 0

    @property
    def serves_in_full(self) -> bool:
        """See :class:`Rival`."""
        return str(self._breaker.current_state) == "closed"

    def ask(self, key: str, answer: Callable[[], Given]) -> By:
        """See :class:`Rival`."""
        was_closed, by = self.serves_in_full, By.MODEL
        try:
            self._breaker.call(_or_weak, answer)
        except _WeakError:
            by = By.FALLBACK  # it raised, so the fallback is asked
        except CircuitBreakerError:
            by = By.FALLBACK
        self.falls += was_closed and not self.serves_in_full
        return by

    def pass_time(self) -> None:
        """See :class:`Rival`."""


def _or_weak(answer: Callable[[], Given]) -> Given:
    given = answer()
    if given.outcome is not Outcome.GOOD:
        raise _WeakError
    return given


@dataclass(kw_only=True)
class Redeploy:
    """A bare app, and an alert rule that has the old image put back. All callers meet whatever image runs."""

    clock: ManualClock
    over_s: float = 300.0
    """The rule looks at so much time …"""
    limit: float = 0.2
    """… and fires at this share of weak answers, …"""
    for_s: float = 300.0
    """… when that has held for so long."""
    human_s: float = 0.0
    """Until somebody has come, looked and given the order; 0: the alert gives it."""
    start_s: float = 120.0
    """Until the old image is pulled, started, loaded and routed to; what is ill answers until then."""
    loads: int = 0
    falls: int = 0
    serves_in_full: bool = True

    def __post_init__(self) -> None:
        """Nothing seen yet."""
        self._seconds: deque[tuple[float, int, int]] = deque()
        self._bad = self._total = 0
        self._firing_since_s: float | None = None
        self._done_s: float | None = None

    def ask(self, key: str, answer: Callable[[], Given]) -> By:
        """See :class:`Rival`."""
        second, weak = float(int(self.clock.monotonic_s())), int(answer().outcome is not Outcome.GOOD)
        if self._seconds and self._seconds[-1][0] == second:
            _, bad, total = self._seconds.pop()
            self._seconds.append((second, bad + weak, total + 1))
        else:
            self._seconds.append((second, weak, 1))
        self._bad, self._total = self._bad + weak, self._total + 1
        return By.MODEL

    def pass_time(self) -> None:
        """See :class:`Rival`."""
        now_s = self.clock.monotonic_s()
        while self._seconds and self._seconds[0][0] < now_s - self.over_s:
            _, bad, total = self._seconds.popleft()
            self._bad, self._total = self._bad - bad, self._total - total
        if self._done_s is not None:
            if now_s >= self._done_s:
                self.loads, self.falls, self._done_s, self._firing_since_s = self.loads + 1, self.falls + 1, None, None
                self._seconds.clear()
                self._bad = self._total = 0
            return
        if not (self._total and self._bad / self._total >= self.limit):
            self._firing_since_s = None
        elif self._firing_since_s is None:
            self._firing_since_s = now_s
        elif now_s >= self._firing_since_s + self.for_s:
            self._done_s = now_s + self.human_s + self.start_s
