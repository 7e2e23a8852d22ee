"""Around the attempts: what to do after each, how long to wait, when to give up. The decision is pure."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import takewhile

from failsoft.errors import ConfigError, NoProgressError
from failsoft.health.backoff import BackoffPolicy
from failsoft.health.clock import Clock


class Next(StrEnum):
    """What follows an attempt."""

    DONE = "done"
    RETRY = "retry"
    STOP = "stop"


@dataclass(frozen=True, kw_only=True)
class Failure:
    """One error that a worker raised, and at which batch; two ranks that meet the same fault raise it once each."""

    error: str
    """Type and message."""
    position: int
    rank: int = 0


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """How one attempt ended."""

    number: int
    finished: bool
    began: int
    """Position of the newest checkpoint before; 0 without one."""
    reached: int
    """The same afterwards. Growth is progress."""
    error: str = ""
    """What ended it, in words."""
    failures: tuple[Failure, ...] = ()
    """Errors raised by code during the attempt; a killed worker raises none."""

    @property
    def progressed(self) -> bool:
        """Whether the attempt left a newer checkpoint."""
        return self.reached > self.began


@dataclass(frozen=True, kw_only=True)
class RestartPolicy:
    """How patient the supervisor is."""

    backoff: BackoffPolicy = field(default_factory=BackoffPolicy)
    """10, 30, 90 s; the count starts anew after progress."""
    max_attempts_without_progress: int = 3

    def __post_init__(self) -> None:
        """Refuse a supervisor that never tries."""
        if self.max_attempts_without_progress < 1:
            raise ConfigError(f"max_attempts_without_progress is {self.max_attempts_without_progress}; use 1 or more")


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What to do next, and why."""

    what: Next
    why: str
    failures_in_a_row: int = 0
    """Failed attempts since the last progress, this one included; sets the wait before a retry."""


def next_attempt(history: Sequence[Attempt], policy: RestartPolicy) -> Decision:
    """Judge the attempts so far; ``history`` is in order and not empty."""
    last = history[-1]
    if last.finished:
        return Decision(what=Next.DONE, why="all batches are consumed")
    bug = _deterministic_bug(history)
    if bug is not None:
        why = (
            f"{bug.error} was raised twice at batch {bug.position}: a bug, not a fault; mend it and start the run again"
        )
        return Decision(what=Next.STOP, why=why)
    barren = _attempts_without_progress(history)
    if barren >= policy.max_attempts_without_progress:
        why = (
            f"{barren} attempts in a row ended without a checkpoint beyond batch {last.reached}; the last one: "
            f"{last.error}; look at the worker's log, then start the run again"
        )
        return Decision(what=Next.STOP, why=why)
    after_progress = barren < len(history)  # the attempt that made progress has failed, too
    return Decision(what=Next.RETRY, why=last.error, failures_in_a_row=barren + after_progress)


def supervise(
    attempt: Callable[[int], Attempt],
    *,
    policy: RestartPolicy,
    clock: Clock,
    rng: random.Random,
    on_failed: Callable[[Attempt, float, str], object] = lambda _attempt, _wait_s, _why: None,
) -> Attempt:
    """Try until done.

    Args:
        attempt: carries one attempt out, given its number from 1.
        policy: when to go on and how long to wait.
        clock: waits.
        rng: spreads the waits.
        on_failed: told of each failed attempt, the wait that follows, and why.

    Raises:
        NoProgressError: a deterministic bug, or too many attempts without progress; says which and what to do.
    """
    history: list[Attempt] = []
    while True:
        history.append(attempt(len(history) + 1))
        decision = next_attempt(history, policy)
        if decision.what is Next.DONE:
            return history[-1]
        wait_s = 0.0
        if decision.what is Next.RETRY:
            wait_s = policy.backoff.wait_s(decision.failures_in_a_row, rng)
        on_failed(history[-1], wait_s, decision.why)
        if decision.what is Next.STOP:
            raise NoProgressError(decision.why)
        clock.sleep_s(wait_s)


def _deterministic_bug(history: Sequence[Attempt]) -> Failure | None:
    counts = Counter(failure for attempt in history for failure in attempt.failures)
    return next((failure for failure, count in counts.items() if count >= 2), None)


def _attempts_without_progress(history: Sequence[Attempt]) -> int:
    return len(list(takewhile(lambda attempt: not attempt.progressed, reversed(history))))
