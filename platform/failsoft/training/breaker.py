"""When refused steps are too many: roll back, or stop. Counts and judges; the loop acts.

Two shared health monitors watch the same steps. The *streak* monitor trips on refusals in a row (the state may be
ill: roll back) and on a fifth of the recent steps (early phase: the data is plainly ill, stop, however short the run
is). The *drop rate* monitor has a window long enough for its limit to mean something: at 0.1 % a window of 100,000
batches expects 100 bad ones, and fewer than 10,000 batches expect fewer than 10, which is chance; that is its minimum.
A streak that was rolled back is one incident in the drop rate, not five.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from failsoft.errors import ConfigError
from failsoft.health.lifecycle import Lifecycle, Move
from failsoft.health.monitor import HealthMonitor, HealthPolicy, Status, Verdict
from failsoft.health.window import Outcome


class RunState(StrEnum):
    """Where a training run is in its life."""

    RUNNING = "running"
    ROLLING_BACK = "rolling back"
    FINISHED = "finished"
    STOPPED = "stopped"
    """By a diagnosis; people must look at it."""


MOVES = {
    RunState.RUNNING: frozenset({RunState.ROLLING_BACK, RunState.FINISHED, RunState.STOPPED}),
    RunState.ROLLING_BACK: frozenset({RunState.RUNNING, RunState.STOPPED}),
    RunState.FINISHED: frozenset[RunState](),
    RunState.STOPPED: frozenset[RunState](),
}


class Advice(StrEnum):
    """What the counts call for."""

    GO_ON = "go on"
    ROLL_BACK = "roll back"
    STOP_STUCK = "stop: rolling back does not help"
    STOP_DROP_RATE = "stop: too many batches are refused"


def streak_policy() -> HealthPolicy:
    """Five refusals in a row, or a fifth of the last 200 batches: the rule of the early phase."""
    return HealthPolicy(window_size=200, min_samples=100, max_bad_fraction=0.20, max_consecutive_bad=5)


def drop_rate_policy() -> HealthPolicy:
    """Warn above 0.01 %, stop when even the lower confidence bound is above 0.1 %."""
    return HealthPolicy(
        window_size=100_000,
        min_samples=10_000,
        max_bad_fraction=0.001,
        ruled_out_bad_fraction=0.001,
        warn_bad_fraction=0.0001,
    )


@dataclass(frozen=True, kw_only=True)
class BreakerPolicy:
    """When to roll back and when to stop."""

    streak: HealthPolicy = field(default_factory=streak_policy)
    drop_rate: HealthPolicy = field(default_factory=drop_rate_policy)
    max_fruitless_rollbacks: int = 3
    """So many rollbacks without an applied step between them stop the run."""

    def __post_init__(self) -> None:
        """Refuse a breaker that never rolls back."""
        if self.streak.max_consecutive_bad is None:
            raise ConfigError("the streak policy has no max_consecutive_bad; set it (5) or nothing ever rolls back")
        if self.max_fruitless_rollbacks < 1:
            raise ConfigError(f"max_fruitless_rollbacks is {self.max_fruitless_rollbacks}; use 1 or more")


def judge(streak: Verdict, drop_rate: Verdict, fruitless_rollbacks: int, policy: BreakerPolicy) -> tuple[Advice, str]:
    """What to do now, and why, from nothing but the counts."""
    if streak.consecutive_bad >= (policy.streak.max_consecutive_bad or 1):
        if fruitless_rollbacks >= policy.max_fruitless_rollbacks:
            return (
                Advice.STOP_STUCK,
                f"{streak.reason} again after {fruitless_rollbacks} rollbacks without one good step",
            )
        return Advice.ROLL_BACK, streak.reason
    for verdict in (streak, drop_rate):
        if verdict.status is Status.DEGRADED:
            return Advice.STOP_DROP_RATE, verdict.reason
    return Advice.GO_ON, drop_rate.reason


class Breaker:
    """The counts of one run. Its state is small JSON and part of the checkpoint."""

    def __init__(self, policy: BreakerPolicy, *, on_move: Callable[[Move[RunState]], None] | None = None) -> None:
        self.policy = policy
        self.life = Lifecycle(MOVES, RunState.RUNNING, on_move)
        self._streak = HealthMonitor(policy=policy.streak)
        self._drops = HealthMonitor(policy=policy.drop_rate)
        self._pending = 0
        self._fruitless = 0
        self._counted = 0
        self._bad_at: deque[int] = deque()
        self.refused = 0
        self.rollbacks = 0

    @property
    def drop_rate(self) -> Verdict:
        """The long window's verdict; its ``warning`` is the early sign."""
        return self._drops.verdict()

    @property
    def in_a_row(self) -> int:
        """Refusals since the last applied step or rollback."""
        return self._pending

    def record(self, *, applied: bool) -> tuple[Advice, str]:
        """Count one step and say what follows from it."""
        self._streak.record(Outcome.GOOD if applied else Outcome.REFUSED)
        if applied:
            self._settle_streak(incidents=self._pending)
            self._fruitless = 0
            self._count(Outcome.GOOD)
        else:
            self.refused += 1
            self._pending += 1
        return judge(self._streak.verdict(), self._drops.verdict(), self._fruitless, self.policy)

    def rolled_back(self) -> None:
        """The streak was answered by a rollback: one incident, and a new start for the count in a row."""
        self._settle_streak(incidents=1)
        self._streak.forget_streak()  # its window stays: bursts with a good step between them still add up
        self._fruitless += 1
        self.rollbacks += 1

    def state_dict(self) -> dict[str, Any]:
        """All counts as JSON; the long window as its length and the places of its bad outcomes."""
        return {
            "refused": self.refused,
            "rollbacks": self.rollbacks,
            "fruitless": self._fruitless,
            "pending": self._pending,
            "counted": self._counted,
            "bad_at": list(self._bad_at),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the counts of a checkpoint on. The short window starts anew; a streak goes on where it was."""
        self.refused, self.rollbacks = int(state_dict["refused"]), int(state_dict["rollbacks"])
        self._fruitless, self._pending = int(state_dict["fruitless"]), int(state_dict["pending"])
        self._streak.clear()
        for _ in range(self._pending):
            self._streak.record(Outcome.REFUSED)
        self._drops.clear()
        self._bad_at.clear()
        bad_at = {int(place) for place in state_dict["bad_at"]}
        counted = int(state_dict["counted"])
        self._counted = max(0, counted - self.policy.drop_rate.window_size)
        for place in range(self._counted, counted):
            self._count(Outcome.REFUSED if place in bad_at else Outcome.GOOD)

    def _settle_streak(self, *, incidents: int) -> None:
        for _ in range(incidents):
            self._count(Outcome.REFUSED)
        self._pending = 0

    def _count(self, outcome: Outcome) -> None:
        self._drops.record(outcome)
        if outcome is Outcome.REFUSED:
            self._bad_at.append(self._counted)
        self._counted += 1
        while self._bad_at and self._bad_at[0] < self._counted - self.policy.drop_rate.window_size:
            self._bad_at.popleft()
