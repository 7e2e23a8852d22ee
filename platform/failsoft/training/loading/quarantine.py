"""The breaker of one source, or of one shard of it: after too many failures it rests, then one request tries again."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from failsoft.health.backoff import BackoffPolicy
from failsoft.health.clock import Clock
from failsoft.health.lifecycle import Lifecycle, Move
from failsoft.health.monitor import HealthMonitor, HealthPolicy, Status
from failsoft.health.window import Outcome

if TYPE_CHECKING:
    from failsoft.training.loading.board import Word


class Gate(StrEnum):
    """A circuit breaker's states, by its usual names."""

    CLOSED = "closed"
    """Well: requests flow."""
    OPEN = "open"
    """In quarantine: nothing is asked of it."""
    PROBING = "probing"
    """One request is let through to see."""


GATE_MOVES = {
    Gate.CLOSED: frozenset({Gate.OPEN}),
    Gate.OPEN: frozenset({Gate.PROBING, Gate.CLOSED}),  # closed by the word of another process
    Gate.PROBING: frozenset({Gate.CLOSED, Gate.OPEN}),
}


def source_health() -> HealthPolicy:
    """Three failures in a row, or half of the last 50 requests: a source that mostly fails costs more than it gives."""
    return HealthPolicy(window_size=50, min_samples=20, max_bad_fraction=0.5, max_consecutive_bad=3)


@dataclass(frozen=True, kw_only=True)
class QuarantinePolicy:
    """When a source rests, and for how long."""

    health: HealthPolicy = field(default_factory=source_health)
    """When a source is ill: the policy of its window of reads."""
    rest: BackoffPolicy = field(default_factory=lambda: BackoffPolicy(first_s=5.0, factor=2.0, cap_s=300.0))
    """Grows with each probe that fails; anew after one that succeeds."""


class Quarantine:
    """Counts one source's answers and says whether to ask it. Used by one thread.

    Args:
        policy: when and how long.
        clock: for rests.
        rng: for the jitter of rests, so that many workers do not probe at once.
        on_move: told of each move.
        word: what it shares with other processes that ask the same source: failures in a row, rests, and that only one
            of them tries it again.
    """

    def __init__(
        self,
        policy: QuarantinePolicy,
        clock: Clock,
        rng: random.Random,
        on_move: Callable[[Move[Gate]], None] = lambda _move: None,
        word: Word | None = None,
    ) -> None:
        self._policy = policy
        self._clock = clock
        self._rng = rng
        self._life = Lifecycle(GATE_MOVES, Gate.CLOSED, self._moved)
        self._on_move = on_move
        self._word = word
        self._struck = False  # failures in a row are on the board
        self.is_well = True
        """The gate is closed. Asked twice for each sample, so it is kept beside the state."""
        self._monitor = HealthMonitor(policy=policy.health)
        self._good = 0  # answers that are not in the window yet: while all is well nothing looks at it
        self._rests = 0
        self._until_s = 0.0
        self.rest_s = 0.0
        """Length of the present rest."""
        self.cause = ""
        """Of the present rest; empty while it is well."""

    @property
    def gate(self) -> Gate:
        """The state now."""
        return self._life.state

    def admits(self) -> bool:
        """Whether to ask now. After the rest the answer is yes, and that request decides."""
        if self.is_well:
            return True
        self.listen()
        if self.gate is Gate.OPEN and self._clock.monotonic_s() >= self._until_s:
            self._life.move(Gate.PROBING, why=f"rested for {self.rest_s:.3g} s")
            self._tell(self._clock.monotonic_s() + self.rest_s)  # the others await what this one finds
        return self.gate is not Gate.OPEN

    @property
    def is_due(self) -> bool:
        """It is ill, and has rested long enough to be tried again."""
        return not self.is_well and (self.gate is Gate.PROBING or self._clock.monotonic_s() >= self._until_s)

    def answered(self) -> None:
        """It gave what it was asked for."""
        self._good += 1
        if self.is_well and not self._struck:
            return
        if self._struck and self._word is not None:
            self._struck = False
            self._word.forgive()
        if self._life.state is Gate.PROBING:
            if self._word is not None:
                self._word.well()
            self._close("it answers again")

    def failed(self, why: str) -> None:
        """It did not."""
        for _ in range(min(self._good, self._policy.health.window_size)):
            self._monitor.record(Outcome.GOOD)
        self._good = 0
        if self._word is not None and self._word.is_there and not self._word.strikes:
            self._monitor.forget_streak()  # it has answered another worker meanwhile
        self._monitor.record(Outcome.ERROR)
        verdict = self._monitor.verdict()
        self.listen()
        if self.gate is Gate.OPEN:
            return
        together = 0 if self._word is None else self._word.strike()
        self._struck = bool(together)
        if self.gate is Gate.PROBING:
            self._rest(f"still not well: {why}")
        elif verdict.status is Status.DEGRADED:
            self._rest(f"{verdict.reason}; last: {why}")
        elif together >= (self._policy.health.max_consecutive_bad or math.inf):
            self._rest(f"{together} bad outcomes in a row, of all workers together; last: {why}")

    def listen(self) -> None:
        """Take over what other processes found out."""
        word = self._word
        if word is None or self.gate is Gate.PROBING or not word.is_there:
            return
        self._struck, until_s = word.strikes > 0, word.until_s
        if self.gate is Gate.OPEN and not until_s:
            self._close("it answers another worker again")
        elif until_s:
            self._rests, self.rest_s, self._until_s = word.rests, word.rest_s, until_s
            if self.gate is Gate.CLOSED:
                self.cause = word.cause
                self._life.move(Gate.OPEN, why=self.cause)

    def _close(self, why: str) -> None:
        self._monitor.clear()
        self._rests, self.cause = 0, ""
        self._life.move(Gate.CLOSED, why=why)

    def _moved(self, move: Move[Gate]) -> None:
        self._on_move(move)
        self.is_well = move.after is Gate.CLOSED

    def _rest(self, cause: str) -> None:
        self._rests += 1
        self.rest_s = self._policy.rest.wait_s(self._rests, self._rng)
        self._until_s = self._clock.monotonic_s() + self.rest_s
        self.cause = cause
        self._tell(self._until_s)
        self._life.move(Gate.OPEN, why=cause)

    def _tell(self, until_s: float) -> None:
        if self._word is not None:
            self._word.rest(rests=self._rests, rest_s=self.rest_s, until_s=until_s, cause=self.cause)
