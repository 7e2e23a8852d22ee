"""One gateway replica's own eye on the subject: armed from the release's healthy baseline, judged after every answer.

It only judges. What a DEGRADED verdict leads to is the affair of whoever made the watch (``on_trip``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from failsoft.health.likeness import Likeness
from failsoft.health.monitor import HealthPolicy, Status
from failsoft.health.panel import Finding, SignalPanel
from failsoft.health.signals import HealthyBehaviour, SignalPolicy, armed_for_labels, is_slow
from failsoft.serving.plan.plan import RoutingPlan
from failsoft.serving.watching.outcomes import Seen

OnTrip = Callable[[int, str], None]
"""Told the epoch and the reason, once for each epoch."""


class Watch:
    """All signals of the subject's answers under the current plan.

    Args:
        policy: the rule for quality, errors and late answers.
        on_trip: told when the verdict is DEGRADED.
        signals: what else is heard, and which of it may trip.
    """

    def __init__(self, policy: HealthPolicy, on_trip: OnTrip, signals: SignalPolicy | None = None) -> None:
        self._policy, self._signals = policy, signals or SignalPolicy()
        self._on_trip = on_trip
        self._panel = SignalPanel(policy, self._signals)
        self._likeness: Likeness | None = None
        self._since = self._epoch = -1
        self._weights: tuple[object, ...] = ()
        self._tripped = False
        self.refusal: str | None = None
        """Why the policy is not armed from the release's baseline; None when it is. The watch runs unarmed then, which
        may trip on a healthy model: whoever reads the status must see it."""

    def arm(self, release: str, baseline: HealthyBehaviour | None) -> None:
        """Take a release's healthy behaviour as the measure; a refusal in words leaves the plain policy in force."""
        signals = self._signals
        if baseline is None:
            signals, _ = armed_for_labels(signals, release, None)
        self._panel = SignalPanel(self._policy, signals, release=release, healthy=baseline)
        self._likeness = None if baseline is None else Likeness(baseline)
        refusals = self._panel.armed.refusals
        if baseline is None:
            refusals = (
                f"not armed from release {release}: it has no baseline; publish it with some healthy inputs",
                *refusals,
            )
        self.refusal = "; ".join(refusals) or None

    def follow(self, plan: RoutingPlan) -> None:
        """Start an empty window when another stage begins, or other weights are watched.

        A plan that only fits shares to what is there keeps the window: replicas that come and go would else empty it
        again and again, and a wave of bad answers would never be seen.
        """
        weights = plan.stage, plan.subject, plan.load_generation.get(plan.subject)
        if plan.epoch != self._epoch and weights != self._weights:
            same = _same_load(weights, self._weights)
            self._panel.clear(but_labels=same and not self._tripped)
            self._since, self._tripped = plan.epoch, False
            if self._likeness is not None and not same:
                self._likeness.clear()
        self._epoch, self._weights = plan.epoch, weights

    def record(self, seen: Seen) -> None:
        """Count one answer of the subject; news from before its window is dropped."""
        if not self._since <= seen.epoch <= self._epoch or self._tripped:
            return
        panel, caller = self._panel, seen.caller
        panel.record(seen.outcome, caller)
        panel.record_repaired(repaired=seen.repaired)
        if not math.isnan(seen.model_ms):
            slow = self.slow(seen)
            if slow is not None:
                panel.record_latency(slow=slow, caller=caller)
            panel.record_oov(seen.oov_share, caller)
            if self._likeness is not None:
                self._likeness.record(words=seen.words, oov_share=seen.oov_share, label=seen.label)
            if seen.label:
                panel.record_label(seen.label, caller)
        self._judge(seen.epoch)

    def slow(self, seen: Seen) -> bool | None:
        """Whether the subject took too long for its release; None where that is unknown."""
        return self.slow_for(self._panel.latency_p95_ms, seen)

    def slow_for(self, latency_p95_ms: float | None, seen: Seen) -> bool | None:
        """Whether a model of another release took too long for it."""
        return is_slow(self._signals, latency_p95_ms, model_ms=seen.model_ms, texts=seen.together)

    def feedback(self, *, right: bool, caller: int | None = None) -> None:
        """Whether an answer of the weights that are watched turned out right, under whatever plan it was given."""
        if not self._tripped:
            self._panel.record_feedback(right=right, caller=caller)
            self._judge(self._epoch)

    def holds_back(self, caller: int | None) -> str | None:
        """Why this request of a caller had better not go to the subject; None: it may. Ask once for each request."""
        return self._panel.holds_back(caller)

    def newly_apart(self) -> list[str]:
        """Words about callers who were set apart since this was last asked."""
        return self._panel.newly_apart()

    def warnings(self) -> dict[str, str]:
        """Signals that are found and may not trip, with their reasons."""
        return self._panel.warnings()

    def verdict(self) -> Finding:
        """What the signals say now."""
        return self._panel.verdict()

    def in_words(self) -> str:
        """The rule in force."""
        return self._panel.armed.health.in_words()

    def status(self) -> dict[str, Any]:
        """What each signal says, for people, and how live texts and answers compare with the release's own."""
        beside = None if self._likeness is None else self._likeness.status()
        return self._panel.status() | {"beside_baseline": beside}

    def _judge(self, epoch: int) -> None:
        finding = self._panel.verdict()
        if finding.status is Status.DEGRADED:
            self._tripped = True
            self._on_trip(epoch, f"{finding.reason}{self._kinds(finding)}")

    def _kinds(self, finding: Finding) -> str:
        """What the bad answers were, as ``: 15 weak, 5 late``."""
        if finding.other is not None:
            return ""
        kinds = {kind: count for kind, count in self._panel.kinds().items() if kind != "good"}
        return ": " + ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) if kinds else ""


def _same_load(weights: tuple[object, ...], before: tuple[object, ...]) -> bool:
    """Whether only the stage is another one."""
    return weights[1:] == before[1:]
