"""One gateway replica's own eye on the subject: armed from the release's healthy baseline, judged after every answer.

It only judges. What a DEGRADED verdict leads to is the affair of whoever made the watch (``on_trip``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from failsoft.errors import ConfigError
from failsoft.health.monitor import HealthMonitor, HealthPolicy, Status, Verdict, armed_policy
from failsoft.health.window import Outcome
from failsoft.serving.plan import RoutingPlan


class Rates(Protocol):
    """What the watch needs of a release's baseline."""

    @property
    def weak_fraction(self) -> float:
        """Share of a healthy model's answers under the low-confidence limit."""
        ...


OnTrip = Callable[[int, str], None]
"""Told the epoch and the reason, once for each epoch."""


class Watch:
    """The window over the subject's answers under the current plan."""

    def __init__(self, policy: HealthPolicy, on_trip: OnTrip) -> None:
        self._policy = policy
        self._on_trip = on_trip
        self._monitor = HealthMonitor(policy=policy)
        self._epoch = -1
        self._tripped = False
        self.refusal: str | None = None
        """Why the policy is not armed from the release's baseline; None when it is. The watch runs unarmed then, which
        may trip on a healthy model: whoever reads the status must see it."""

    def arm(self, release: str, baseline: Rates | None) -> None:
        """Take the healthy rate of a release as the measure; a refusal in words leaves the plain policy in force."""
        try:
            if baseline is None:
                raise ConfigError("it has no baseline; publish it with some healthy inputs")
            policy, self.refusal = armed_policy(self._policy, baseline.weak_fraction), None
        except ConfigError as error:
            policy, self.refusal = self._policy, f"not armed from release {release}: {error}"
        self._monitor = HealthMonitor(policy=policy)

    def follow(self, plan: RoutingPlan) -> None:
        """Start an empty window when the epoch is another."""
        if plan.epoch != self._epoch:
            self._epoch, self._tripped = plan.epoch, False
            self._monitor.clear()

    def record(self, epoch: int, outcome: Outcome) -> None:
        """Count one answer of the subject; news from another epoch is dropped."""
        if epoch != self._epoch or self._tripped:
            return
        self._monitor.record(outcome)
        verdict = self._monitor.verdict()
        if verdict.status is Status.DEGRADED:
            self._tripped = True
            self._on_trip(epoch, verdict.reason)

    def verdict(self) -> Verdict:
        """What the window says now."""
        return self._monitor.verdict()

    def in_words(self) -> str:
        """The rule in force."""
        return self._monitor.policy.in_words()
