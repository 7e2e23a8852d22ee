"""Around the attempts: what to do after each, how long to wait, when to give up. The decision is pure."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import takewhile

from failsoft.errors import ConfigError, NoProgressError, PreemptedError
from failsoft.health.backoff import BackoffPolicy
from failsoft.health.clock import Clock
from failsoft.health.ledger import Event


class Next(StrEnum):
    """What follows an attempt."""

    DONE = "done"
    RETRY = "retry"
    STOP = "stop"
    LEAVE = "leave"
    """The run was told to go; the same command takes it up again."""


class Cause(StrEnum):
    """What kind of thing ended an attempt; each kind has a budget of its own."""

    BUG = "bug"
    """An error that the job's own code raised."""
    INFRASTRUCTURE = "infrastructure"
    """A worker was killed or hung, or what it needs (a peer, a disk, memory) was away."""
    PREEMPTION = "preemption"
    """Its machine was wanted elsewhere; the workers were told, saved and left."""
    RESIZE = "resize"
    """The supervisor itself had the workers save and leave, to go on with more of them."""


CONTROLLER_FAILED = "controller_failed"
"""The ledger's word for an attempt that an error of code ended in what leads the workers; as one of theirs, a bug."""
CONTROLLER_LOST = "controller_lost"
"""The ledger's word for an attempt whose workers were ended since what led them had died."""
DRIVER_LOST = "driver_lost"
"""The same, of the process that had started what led them."""
_NO_FAULT = frozenset({Cause.PREEMPTION, Cause.RESIZE})
"""What moves a run says nothing of its health: it waits for nothing and is charged to no failure's budget."""


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
    """Position of the newest checkpoint before, or where workers last began if that was later: with a snapshot that
    outlived the ones before them. 0 without either."""
    reached: int
    """The same afterwards. Growth is progress; what lies in memory only is known when somebody has begun with it."""
    error: str = ""
    """What ended it, in words."""
    failures: tuple[Failure, ...] = ()
    """Errors raised by code during the attempt; a killed worker raises none."""
    preempted: bool = False
    """The workers were told to leave, and did."""
    told_to_leave: bool = False
    """The whole run was told to end, not only these workers."""
    resized: bool = False
    """The workers left because the supervisor asked them to, for a planned change of their number."""
    room_lost: bool = False
    """Nodes went, so that Ray could not make use of its one immediate retry; the supervisor makes it, with fewer."""
    forgot: int | None = None
    """A group of workers began with batch 0 although a checkpoint at this position was there; None: none did."""

    @property
    def cause(self) -> Cause:
        """Which budget it is charged to."""
        if self.resized:
            return Cause.RESIZE
        if self.preempted:
            return Cause.PREEMPTION
        return Cause.BUG if self.failures else Cause.INFRASTRUCTURE

    @property
    def progressed(self) -> bool:
        """Whether the attempt left a newer checkpoint."""
        return self.reached > self.began


@dataclass(frozen=True, kw_only=True)
class RestartPolicy:
    """How patient the supervisor is."""

    backoff: BackoffPolicy = field(default_factory=BackoffPolicy)
    """10, 30, 90 s after bugs and infrastructure; the count starts anew after progress."""
    max_attempts_without_progress: int = 3
    """Of bugs and infrastructure together, in a row."""
    max_bugs_without_progress: int = 2
    """An error of the code needs no third look: a machine may be away for a while, code is not."""
    max_preemptions_without_progress: int | None = None
    """None: a run may be moved as often as its machines are wanted elsewhere. Preemptions wait for nothing and touch
    no other budget."""

    def __post_init__(self) -> None:
        """Refuse a supervisor that never tries."""
        for name in ("max_attempts_without_progress", "max_bugs_without_progress", "max_preemptions_without_progress"):
            limit = getattr(self, name)
            if limit is not None and limit < 1:
                raise ConfigError(f"{name} is {limit}; use 1 or more")


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What to do next, and why."""

    what: Next
    why: str
    failures_in_a_row: int = 0
    """Failed attempts since the last progress, this one included; sets the wait before a retry."""


_GOES_ON = "the same command goes on from batch {}"
_LOOK_S = 0.5


def next_attempt(history: Sequence[Attempt], policy: RestartPolicy) -> Decision:
    """Judge the attempts so far; ``history`` is in order and not empty."""
    last = history[-1]
    if last.finished:
        return Decision(what=Next.DONE, why="all batches are consumed")
    if last.told_to_leave:
        return Decision(what=Next.LEAVE, why=f"{last.error}; {_GOES_ON.format(last.reached)}")
    why_not = _reason_to_stop(history, policy)
    if why_not is not None:
        return Decision(what=Next.STOP, why=why_not)
    if last.cause in _NO_FAULT:
        return Decision(what=Next.RETRY, why=last.error)
    return Decision(what=Next.RETRY, why=last.error, failures_in_a_row=_failures_in_a_row(history))


def supervise(
    attempt: Callable[[int], Attempt],
    *,
    policy: RestartPolicy,
    clock: Clock,
    rng: random.Random,
    on_failed: Callable[[Attempt, float, str], object] = lambda _attempt, _wait_s, _why: None,
    told: Callable[[], bool] = lambda: False,
) -> Attempt:
    """Try until done.

    Args:
        attempt: carries one attempt out, given its number from 1.
        policy: when to go on and how long to wait.
        clock: waits.
        rng: spreads the waits.
        on_failed: told of each failed attempt, the wait that follows, and why.
        told: whether the run was told to leave; asked twice a second while waiting, since a wait is no reason to stay.

    Raises:
        NoProgressError: a deterministic bug, too many attempts without progress, or a job that passes its checkpoints
            over; says which and what to do.
        PreemptedError: the run was told to leave.
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
        if decision.what is Next.LEAVE:
            raise PreemptedError(decision.why)
        _wait(wait_s, clock, told)
        if told():
            raise PreemptedError(f"told to leave before another attempt; {_GOES_ON.format(history[-1].reached)}")


def _wait(wait_s: float, clock: Clock, told: Callable[[], bool]) -> None:
    until_s = clock.monotonic_s() + wait_s
    while not told() and (left_s := until_s - clock.monotonic_s()) > 0.0:
        clock.sleep_s(min(left_s, _LOOK_S))


def _reason_to_stop(history: Sequence[Attempt], policy: RestartPolicy) -> str | None:
    last = history[-1]
    if last.forgot is not None:
        return (
            f"an attempt began again with batch 0 although a checkpoint at batch {last.forgot} was there, so all since "
            "then would be repeated; let the job restore its checkpoint before it trains, then start the run again"
        )
    bug = _deterministic_bug(history)
    if bug is not None:
        return (
            f"{bug.error} was raised twice at batch {bug.position}: a bug, not a fault; mend it and start the run again"
        )
    return _spent_budget(history, policy)


def _spent_budget(history: Sequence[Attempt], policy: RestartPolicy) -> str | None:
    """Attempts that did not progress, by cause; moving a run between machines (preemption) says nothing of the rest."""
    last = history[-1]
    barren = _since_progress(history)
    faultless = [attempt for attempt in barren if attempt.cause in _NO_FAULT]
    moved = [attempt for attempt in faultless if attempt.cause is Cause.PREEMPTION]
    if policy.max_preemptions_without_progress is not None and len(moved) >= policy.max_preemptions_without_progress:
        return (
            f"{len(moved)} times the workers were told to leave before a checkpoint beyond batch {last.reached}; use "
            "machines that stay longer, or checkpoint more often"
        )
    bugs = [attempt for attempt in barren if attempt.cause is Cause.BUG]
    if len(bugs) >= policy.max_bugs_without_progress:
        return (
            f"{len(bugs)} attempts ended by errors of the code without a checkpoint beyond batch {last.reached}; the "
            f"last one: {bugs[0].error}; mend it, then start the run again"
        )
    failed = len(barren) - len(faultless)
    if failed >= policy.max_attempts_without_progress:
        return (
            f"{failed} attempts in a row ended without a checkpoint beyond batch {last.reached}; the last one: "
            f"{last.error}; look at the worker's log, then start the run again"
        )
    return None


def _failures_in_a_row(history: Sequence[Attempt]) -> int:
    """Since the last progress, and with the attempt that made it, for it has failed, too; moving the run is none.

    Where a node was lost, the one immediate retry is still to be had.
    """
    barren = _since_progress(history)
    row = [attempt for attempt in history[-len(barren) - 1 :] if attempt.cause not in _NO_FAULT]
    return len(row) - any(attempt.room_lost for attempt in row)


def _deterministic_bug(history: Sequence[Attempt]) -> Failure | None:
    """Told to leave, a worker may fail of whatever went before it: its loader, a peer. That is no bug, at any batch."""
    stayed = (attempt for attempt in history if attempt.cause not in _NO_FAULT)
    counts = Counter(failure for attempt in stayed for failure in attempt.failures)
    return next((failure for failure, count in counts.items() if count >= 2), None)


def _since_progress(history: Sequence[Attempt]) -> list[Attempt]:
    """Attempts after the last that progressed, the newest first."""
    return list(takewhile(lambda attempt: not attempt.progressed, reversed(history)))


def began_anew(events: Iterable[Event], *, checkpoint: int) -> int | None:
    """The position of a checkpoint that a group of workers passed over to begin with batch 0; None when none did.

    Args:
        events: those of one attempt, in order; Ray may have started several groups in it.
        checkpoint: position of the newest checkpoint before it; 0 without one.
    """
    for event in events:
        position = event.count("position", -1)  # too large an event loses its data: where it began is not known then
        if event.kind == "checkpoint_published":
            checkpoint = max(checkpoint, position)
        elif event.kind in {"checkpoint_quarantined", "checkpoints_unreadable"}:
            checkpoint = 0  # there may be nothing left to begin with
        elif event.kind == "run_started" and position == 0 and checkpoint > 0:
            return checkpoint
    return None


def last_beginning(events: Iterable[Event]) -> int:
    """Position with which a group of workers began last; 0 when none did."""
    begun = [event.count("position", 0) for event in events if event.kind == "run_started"]
    return begun[-1] if begun else 0
