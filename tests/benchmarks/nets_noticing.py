"""How many requests it takes until the nets together notice malformed traffic, and how often they cry wolf."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from failsoft.artifacts.bundle import Baseline
from failsoft.health.monitor import HealthMonitor, HealthPolicy, Status, fitted_policy
from failsoft.health.panel import SignalPanel
from tests.benchmarks.nets_trial import Answered

BEFORE = 600
"""Clean requests before the first malformed one: all windows are full of them."""
MOST = 2000
"""After so many malformed requests nobody is waited for any more."""
REQUESTS_PER_DAY_AT_50_HZ = 50 * 86_400


class Eye(Protocol):
    """Sees answers, and says what it has noticed."""

    def see(self, one: Answered) -> None:
        """One more answer."""
        ...

    def noticed(self) -> str | None:
        """The signal; None: nothing."""
        ...


def rule_for(baseline: Baseline) -> HealthPolicy:
    """Serving's own rule, as it is armed from this release."""
    return fitted_policy(HealthPolicy(), baseline.weak_fraction)[0]


class Confidence:
    """The confidence of the intents alone."""

    def __init__(self, baseline: Baseline) -> None:
        self._monitor = HealthMonitor(policy=rule_for(baseline))

    def see(self, one: Answered) -> None:
        """See :class:`Eye`."""
        self._monitor.record(one.outcome)

    def noticed(self) -> str | None:
        """See :class:`Eye`."""
        return "trip: confidence" if self._monitor.verdict().status is Status.DEGRADED else None


class AllNets:
    """All signals together, as a gateway has them."""

    def __init__(self, baseline: Baseline) -> None:
        self.panel = SignalPanel(HealthPolicy(), release="tried", healthy=baseline)

    def see(self, one: Answered) -> None:
        """See :class:`Eye`."""
        self.panel.record(one.outcome)
        self.panel.record_repaired(repaired=one.repaired)
        self.panel.record_oov(one.oov_share)
        self.panel.record_label(one.intent)

    def noticed(self) -> str | None:
        """See :class:`Eye`."""
        finding = self.panel.verdict()
        if finding.status is Status.DEGRADED:
            return f"trip: {finding.reason_signal}"
        warnings = self.panel.warnings()
        return f"warning: {', '.join(sorted(warnings))}" if warnings else None


@dataclass(frozen=True, kw_only=True)
class Noticed:
    """What several waves came to."""

    median: float
    """Malformed requests until it was noticed; infinite when most waves never were."""
    slowest: float
    signal: str
    """Whoever noticed most often."""

    def in_words(self) -> str:
        """For a table."""
        if self.median == float("inf"):
            return f"never within {MOST}"
        return f"{self.median:.0f} (at most {self.slowest:.0f}) {self.signal}"


def until_noticed(
    eye_of: Callable[[], Eye], clean: Sequence[Answered], bad: Sequence[Answered], *, waves: int, seed: int = 5
) -> Noticed:
    """Waves of malformed requests after clean ones, all drawn with replacement."""
    counts, signals = [], Counter[str]()
    for wave in range(waves):
        count, signal = _wave(eye_of(), clean, bad, random.Random(seed + wave))
        counts.append(count)
        signals[signal] += 1
    ordered = sorted(counts)
    return Noticed(median=ordered[len(ordered) // 2], slowest=ordered[-1], signal=signals.most_common(1)[0][0])


def _wave(eye: Eye, clean: Sequence[Answered], bad: Sequence[Answered], chance: random.Random) -> tuple[float, str]:
    for one in chance.choices(clean, k=BEFORE):
        eye.see(one)
    if (already := eye.noticed()) is not None:
        return 0.0, f"false before the wave: {already}"
    for count, one in enumerate(chance.choices(bad, k=MOST), start=1):
        eye.see(one)
        if (signal := eye.noticed()) is not None:
            return float(count), signal
    return float("inf"), "nobody"


@dataclass(frozen=True, kw_only=True)
class FalseAlarms:
    """What clean traffic set off."""

    requests: int
    trips: int
    warnings: int

    def per_day(self, events: int) -> float:
        """At 50 requests a second."""
        return events * REQUESTS_PER_DAY_AT_50_HZ / self.requests


def false_alarms(baseline: Baseline, clean: Sequence[Answered], *, requests: int, seed: int = 9) -> FalseAlarms:
    """Clean traffic for as long as it takes. A trip clears all windows; a warning counts where it begins."""
    nets, chance = AllNets(baseline), random.Random(seed)
    trips = warnings = done = 0
    warned = False
    while done < requests:
        for one in chance.choices(clean, k=50):
            nets.see(one)
            if nets.panel.verdict().status is Status.DEGRADED:
                trips += 1
                nets.panel.clear()
        done += 50
        now = bool(nets.panel.warnings())
        warnings += now and not warned
        warned = now
    return FalseAlarms(requests=done, trips=trips, warnings=warnings)
