"""When refused steps are too many: go back, or stop. Counts and judges; the recovery acts.

Three shared health monitors. The *streak* monitor trips on refusals in a row (the state may be ill: go back) and on a
fifth of the last 200 steps (the rule of the early phase: such data is plainly ill, however short the run is). The
*drop rate* counts batches and the *skip rate* counts samples that were left out one by one (by a person, or by the
task); each has a window long enough for its limit to mean something, and stops the run only when the exact lower
confidence bound is above the limit. At 0.1 % a window of 100,000 batches expects 100 bad ones; fewer than 10,000
expect fewer than 10, which is chance, so that is the minimum. Samples often come in clumps: ten times as many.

Each way back is one incident in the drop rate, however many batches were refused before it. Where a stretch is met
again, its counts are taken back with it, so that a batch counts once, by its last verdict. A second refusal of the same
batch is about its data: it calls for no further way back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from failsoft.errors import ConfigError
from failsoft.health.blocks import BlockMonitor
from failsoft.health.lifecycle import Lifecycle, Move
from failsoft.health.monitor import HealthMonitor, HealthPolicy, Status, Verdict
from failsoft.health.sequential import Tally, exact_lower_bound
from failsoft.health.window import Outcome
from failsoft.training.escalation import EscalationPolicy, Remedy, Tried, next_remedy
from failsoft.training.passes import PassBook


class RunState(StrEnum):
    """Where a training run is in its life."""

    RUNNING = "running"
    ROLLING_BACK = "rolling back"
    """To the snapshot in RAM."""
    BACK_TO_DISK = "going back to disk"
    """To a checkpoint before it."""
    FINISHED = "finished"
    STOPPED = "stopped"
    """By a diagnosis; people must look at it."""


MOVES = {
    RunState.RUNNING: frozenset(set(RunState) - {RunState.RUNNING}),
    RunState.ROLLING_BACK: frozenset({RunState.RUNNING, RunState.STOPPED}),
    RunState.BACK_TO_DISK: frozenset({RunState.RUNNING, RunState.STOPPED}),
    RunState.FINISHED: frozenset[RunState](),
    RunState.STOPPED: frozenset[RunState](),
}


class Advice(StrEnum):
    """What the counts call for."""

    GO_ON = "go on"
    ROLL_BACK = "go back"
    """By the remedy that :meth:`Breaker.remedy` names."""
    STOP_STUCK = "stop: going back does not help"
    STOP_DROP_RATE = "stop: too much of the data is refused"


def streak_policy() -> HealthPolicy:
    """Five refusals in a row, or a fifth of the last 200 batches: the rule of the early phase."""
    return HealthPolicy(window_size=200, min_samples=100, max_bad_fraction=0.20, max_consecutive_bad=5)


def rate_policy(*, window_size: int, min_samples: int) -> HealthPolicy:
    """Warn above 0.01 %, stop when even the lower confidence bound (99.9 %) is above 0.1 %."""
    return HealthPolicy(
        window_size=window_size,
        min_samples=min_samples,
        max_bad_fraction=0.001,
        ruled_out_bad_fraction=0.001,
        warn_bad_fraction=0.0001,
    )


@dataclass(frozen=True, kw_only=True)
class BreakerPolicy:
    """When to go back, how, and when to stop."""

    streak: HealthPolicy = field(default_factory=streak_policy)
    """Of batches: five refused in a row, or a fifth of the last 200, and it goes back."""
    drop_rate: HealthPolicy = field(default_factory=lambda: rate_policy(window_size=100_000, min_samples=10_000))
    """Of batches."""
    skip_rate: HealthPolicy = field(default_factory=lambda: rate_policy(window_size=10_000_000, min_samples=100_000))
    """Of samples."""
    escalation: EscalationPolicy = field(default_factory=EscalationPolicy)
    """What is done when trouble comes back."""

    def __post_init__(self) -> None:
        """Refuse a breaker that never goes back."""
        if self.streak.max_consecutive_bad is None:
            raise ConfigError("the streak policy has no max_consecutive_bad; set it (5) or nothing ever rolls back")


def judge(streak: Verdict, drop_rate: Verdict, remedy: Remedy) -> tuple[Advice, str]:
    """What to do now, and why (empty to go on), from nothing but the counts.

    Args:
        streak: of recent steps; it goes before the long window.
        drop_rate: of the long window of batches.
        remedy: the next one at this place.
    """
    if streak.in_a_row:
        return (Advice.STOP_STUCK if remedy is Remedy.STOP else Advice.ROLL_BACK), streak.reason
    if streak.status is Status.DEGRADED:
        return Advice.STOP_DROP_RATE, f"{streak.reason}, in the last {streak.policy.window_size} steps"
    if drop_rate.status is Status.DEGRADED:
        return Advice.STOP_DROP_RATE, rate_in_words(drop_rate, "batches")
    return Advice.GO_ON, ""


def rate_in_words(verdict: Verdict, unit: str) -> str:
    """Like "14 bad of 12,000 batches (0.117 %, at least 0.043 % with 99.9 % confidence)", with the limits."""
    policy, total = verdict.policy, verdict.total
    if not total:
        return f"no {unit} yet"
    low = exact_lower_bound(Tally(bad=verdict.bad, total=total), alpha=policy.chance_alpha)
    share, sure = verdict.bad / total, 1.0 - policy.chance_alpha
    limits = f"warns above {_percent(policy.warn_bad_fraction or 0.0)}, stops when surely above"
    return (
        f"{verdict.bad:,} bad of {total:,} {unit} ({_percent(share)}, at least {_percent(low)} with {sure * 100:g} % "
        f"confidence; {limits} {_percent(policy.max_bad_fraction)})"
    )


def _percent(share: float) -> str:
    return f"{share * 100:.3f} %"


class Breaker:
    """The counts of one run. Its state is small JSON and part of the checkpoint; all ranks count alike."""

    def __init__(self, policy: BreakerPolicy, *, on_move: Callable[[Move[RunState]], None] | None = None) -> None:
        self.policy = policy
        self.on_move: Callable[[Move[RunState]], None] = on_move or (lambda _move: None)
        """Told of each move; one event of the ledger each."""
        self.life = Lifecycle(MOVES, RunState.RUNNING, self._moved)
        self.passes = PassBook()
        self.history: list[Tried] = []
        """What was tried at this place, in order."""
        self._streak = HealthMonitor(policy=policy.streak)
        self._drops = BlockMonitor(policy=policy.drop_rate)
        self._skips = BlockMonitor(policy=policy.skip_rate)
        self._pending = 0
        self._since_back = 0
        self._then: Mapping[str, Any] | None = None
        self.refused = 0
        """Batches that left no trace, each once."""
        self.rollbacks = 0
        """Ways back, to RAM or disk."""

    @property
    def drop_rate(self) -> Verdict:
        """Of batches; its ``warning`` is the early sign."""
        return self._drops.verdict()

    @property
    def skip_rate(self) -> Verdict:
        """Of samples that were left out one by one."""
        return self._skips.verdict()

    @property
    def in_a_row(self) -> int:
        """Refusals since the last applied step or way back."""
        return self._pending

    def record(self, *, applied: bool, position: int | None = None) -> tuple[Advice, str]:
        """Count one step and say what follows from it.

        A batch that an earlier pass refused, too, is ill whatever the state: its second refusal says nothing against
        the state that the run went back to, and no way back would help.
        """
        if not applied and position is not None and self.passes.was_refused(position):
            self.passes.refused(position)
            self.passed_over(position)
            return judge(self._streak.verdict(), self._drops.verdict(), self.remedy())
        self._streak.record(Outcome.GOOD if applied else Outcome.REFUSED)
        if applied:
            self._drops.count(good=1, bad=self._pending)
            self._pending = 0
            self._settle()
        else:
            self.refused += 1
            self._pending += 1
            if position is not None:
                self.passes.refused(position)
        return judge(self._streak.verdict(), self._drops.verdict(), self.remedy())

    def passed_over(self, position: int) -> None:
        """A batch refused in two passes is not met a third time; unless a way back counts for it, it counts."""
        self.refused += 1
        if not self.passes.was_in_burst(position):
            self._drops.count(bad=1)

    def saw(self, *, samples: int, skipped: int) -> tuple[Advice, str]:
        """Count samples over all ranks, ``skipped`` of them left out one by one."""
        self._skips.count(good=samples - skipped, bad=skipped)
        verdict = self._skips.verdict()
        if verdict.status is Status.DEGRADED:
            return Advice.STOP_DROP_RATE, rate_in_words(verdict, "samples")
        return Advice.GO_ON, ""

    def remedy(self) -> Remedy:
        """What to try now, at this place."""
        return next_remedy(self.history, self.policy.escalation)

    def tried(self, remedy: Remedy, *, position: int, why: str) -> None:
        """Remember a remedy of this place; also one that could not be had."""
        self.history.append(Tried(remedy=remedy, position=position, why=why))
        self._since_back = 0

    def rewound(self, then: Mapping[str, Any] | None) -> None:
        """The state is an older one again; ``then`` is this breaker's state of that moment."""
        self._then = then

    def rolled_back(
        self, *, remedy: Remedy = Remedy.SNAPSHOT, position: int = 0, why: str = "", replays: bool = False
    ) -> None:
        """The trouble was answered by a way back: one incident, and a new start for the count in a row.

        Args:
            remedy: which way.
            position: where the run turned back.
            why: which trouble.
            replays: the stretch is met again: what was counted in it is taken back.
        """
        self.tried(remedy, position=position, why=why)
        if replays:
            self.passes.burst(range(position - self._pending, position))
            self._take_back()
        self._drops.count(bad=1)
        self._pending, self._then = 0, None
        self._streak.forget_streak()  # its window stays: bursts with a good step between them still add up
        self.rollbacks += 1

    def state_dict(self) -> dict[str, Any]:
        """All counts as JSON."""
        return {
            "refused": self.refused,
            "rollbacks": self.rollbacks,
            "pending": self._pending,
            "drops": self._drops.counts(),
            "skips": self._skips.counts(),
            "history": [{"remedy": t.remedy, "position": t.position, "why": t.why} for t in self.history],
            "since_back": self._since_back,
            "passes": self.passes.state_dict(),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take the counts of a checkpoint on, of failsoft 0.1 too. The short window starts anew; a streak goes on."""
        self.refused, self.rollbacks = int(state_dict["refused"]), int(state_dict["rollbacks"])
        self._pending = int(state_dict["pending"])
        self._streak.clear()
        for _ in range(self._pending):
            self._streak.record(Outcome.REFUSED)
        _load_window(self._drops, state_dict)
        self._skips.load_counts(state_dict.get("skips", ()))
        self.history = [Tried.from_json(entry) for entry in state_dict.get("history", ())]
        self._since_back = int(state_dict.get("since_back", 0))
        self.passes.load_state_dict(state_dict.get("passes", {}))

    def _take_back(self) -> None:
        """Windows as they were then; the ways back since then stay incidents."""
        if self._then is None:
            return
        self.refused = int(self._then["refused"])
        _load_window(self._drops, self._then)
        self._drops.count(bad=self.rollbacks - int(self._then["rollbacks"]))
        self._skips.load_counts(self._then.get("skips", ()))

    def _moved(self, move: Move[RunState]) -> None:
        self.on_move(move)  # looked up late: the loop sets it after the breaker is made

    def _settle(self) -> None:
        if not self.history:
            return
        self._since_back += 1
        if self._since_back >= self.policy.escalation.settled_after_steps:
            self.history.clear()


def _load_window(window: BlockMonitor, state_dict: Mapping[str, Any]) -> None:
    if "drops" in state_dict:
        window.load_counts(state_dict["drops"])
        return
    window.clear()
    begins = max(0, int(state_dict["counted"]) - window.policy.window_size)  # failsoft 0.1 listed the bad ones
    for place in [int(place) for place in state_dict["bad_at"] if place >= begins]:
        window.count(good=place - begins, bad=1)
        begins = place + 1
    window.count(good=int(state_dict["counted"]) - begins)
