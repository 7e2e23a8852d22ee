"""A rung that fails or dawdles again and again rests, and is then tried by one request at a time.

What breakers elsewhere got wrong is ruled out by tickets: a try that never reports is reclaimed after a time, one that
was not made gives its place back, and news from before the last move changes nothing, however late it comes.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from failsoft.errors import ConfigError
from failsoft.health.backoff import BackoffPolicy
from failsoft.health.clock import Clock
from failsoft.health.lifecycle import Lifecycle


class RungState(StrEnum):
    """Whether a rung is asked."""

    ASKED = "asked"
    RESTING = "resting"
    TRIED = "tried"
    """One request is with it; the others pass it by."""


_MOVES: Mapping[RungState, frozenset[RungState]] = {
    RungState.ASKED: frozenset({RungState.RESTING}),
    RungState.RESTING: frozenset({RungState.TRIED}),
    RungState.TRIED: frozenset({RungState.ASKED, RungState.RESTING}),
}


@dataclass(frozen=True, kw_only=True)
class BreakerPolicy:
    """When a rung rests, and for how long."""

    failures_in_a_row: int = 5
    """As many as Envoy's outlier detection takes (consecutive 5xx)."""
    try_within_s: float = 2.0
    """A try that has not reported after so long is over, and counts as failed."""
    rest: BackoffPolicy = field(default_factory=lambda: BackoffPolicy(first_s=1.0, factor=2.0, cap_s=30.0))
    """How long a rung that failed rests; longer each time."""

    def __post_init__(self) -> None:
        """Refuse a breaker that rests without a failure, or that a lost try stops for ever."""
        if self.failures_in_a_row < 1:
            raise ConfigError(f"failures_in_a_row is {self.failures_in_a_row}; a rung rests after 1 failure or more")
        if not 0.0 < self.try_within_s < float("inf"):
            raise ConfigError(f"try_within_s is {self.try_within_s}; give a try some seconds, such as 2")


class Ticket(NamedTuple):
    """Leave to ask the rung once; worth nothing after the next move."""

    moves: int


class RungBreaker:
    """Says whether a rung may be asked, and hears how it went. O(1); for one thread.

    Every ticket goes back by :meth:`succeeded`, :meth:`failed` or :meth:`returned`.
    """

    def __init__(self, policy: BreakerPolicy, *, clock: Clock, rng: random.Random) -> None:
        self._policy = policy
        self._clock = clock
        self._rng = rng
        self._life = Lifecycle(_MOVES, RungState.ASKED)
        self._moves = 0
        self._failures = 0
        self._successes = 0
        self._rests = 0
        self._until_s = 0.0
        self.why: str | None = None
        """Why it rests; None while it is asked."""

    @property
    def state(self) -> RungState:
        """Whether the rung is asked."""
        return self._life.state

    @property
    def rests(self) -> int:
        """Rests since it last went well for a while; each is longer than the one before."""
        return self._rests

    def admit(self) -> Ticket | None:
        """Leave to ask the rung; None while it rests or another request tries it."""
        state = self._life.state
        if state is RungState.ASKED:
            return Ticket(self._moves)
        if self._clock.monotonic_s() < self._until_s:
            return None
        if state is RungState.TRIED:
            self._rest(f"a try did not report within {self._policy.try_within_s:g} s")
            return None
        self._go(RungState.TRIED, "the rest is over")
        self._until_s = self._clock.monotonic_s() + self._policy.try_within_s
        return Ticket(self._moves)

    def succeeded(self, ticket: Ticket) -> None:
        """The rung answered, in time."""
        if ticket.moves != self._moves:
            return
        self._failures = 0
        self._successes += 1
        if self._life.state is RungState.TRIED:
            self._successes, self.why = 1, None
            self._go(RungState.ASKED, "the try went well")
        if self._successes >= self._policy.failures_in_a_row:
            self._rests = 0

    def failed(self, ticket: Ticket, why: str) -> None:
        """The rung raised, said nonsense or took too long."""
        if ticket.moves != self._moves:
            return
        self._failures += 1
        self._successes = 0
        if self._life.state is RungState.TRIED:
            self._rest(f"the try failed: {why}")
        elif self._failures >= self._policy.failures_in_a_row:
            self._rest(f"{self._failures} failures in a row, the last: {why}")

    def returned(self, ticket: Ticket) -> None:
        """The rung was not asked after all, or what came of it says nothing: the place is free again."""
        if ticket.moves == self._moves and self._life.state is RungState.TRIED:
            self._go(RungState.RESTING, "the try was not made")
            self._until_s = self._clock.monotonic_s()

    def _rest(self, why: str) -> None:
        self._rests += 1
        self._failures, self.why = 0, why
        self._go(RungState.RESTING, why)
        self._until_s = self._clock.monotonic_s() + self._policy.rest.wait_s(self._rests, self._rng)

    def _go(self, to: RungState, why: str) -> None:
        self._life.move(to, why=why)
        self._moves += 1
