"""The signals that one answer gives, which of them may trip and at what level, and when a policy fits a release."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol

from failsoft.errors import ConfigError
from failsoft.health.callers import CallerPolicy
from failsoft.health.drift import DriftPolicy
from failsoft.health.monitor import HealthPolicy, false_trip_risk, fitted_policy
from failsoft.health.window import Outcome


class Level(StrEnum):
    """What a signal may do."""

    TRIP = "trip"
    """Take the model's trust away."""
    WARN = "warn"
    """Be seen in the status, with its reason."""
    OFF = "off"
    """Nothing: it is not judged, and such answers count as good."""


_SHARE_OF_SLOW = HealthPolicy(window_size=200, min_samples=50)
_SHARE_OF_NO_ANSWER = HealthPolicy(window_size=200, min_samples=50)
_SHARE_OF_WRONG = HealthPolicy(window_size=200, min_samples=20, max_bad_fraction=0.30, ruled_out_bad_fraction=0.15)
_OF_OUTCOME = {"quality": Outcome.WEAK, "error": Outcome.ERROR, "late": Outcome.LATE}
_HEALTHY_SLOW_FRACTION = 0.05
"""By what a 95th percentile is: no more of a healthy model's answers take longer, let alone twice as long."""


@dataclass(frozen=True, kw_only=True)
class SignalPolicy:
    """Which signals are heard, and what each may do. Quality, errors and late answers share one window and its rule."""

    quality: Level = Level.TRIP
    """Answers that are not credible."""
    error: Level = Level.TRIP
    """Calls that failed."""
    late: Level = Level.TRIP
    """Calls that were cut at the deadline, except for want of a turn in our own queues."""
    latency: Level = Level.TRIP
    """The model's own time against the release's 95th percentile, also far below the deadline; each arm by itself."""
    label_mix: Level = Level.WARN
    """The labels of answers against the release's. Callers' habits change, too: by itself no reason to fall."""
    oov: Level = Level.WARN
    """Unknown words of texts against the release's. It speaks of the input first."""
    feedback: Level = Level.TRIP
    """Right labels that come later, against the release's own accuracy: the one signal that sees a model which is wrong
    and sure of it. Without labels nothing is judged."""
    shed: Level = Level.WARN
    """Calls refused for load: never held against the model, so they may warn and not trip."""
    bad_input: Level = Level.WARN
    """Hopeless texts; likewise."""
    repaired: Level = Level.WARN
    """Texts that had to be mended before the model could read them; likewise. The model may well answer them as ever:
    nothing else sees such traffic."""

    latency_factor: float = 2.0
    """An answer is slow when its call took more than so many times the release's 95th percentile (for each text that it
    carried) …"""
    latency_slack_ms: float = 20.0
    """… and at least so much more than it: a busy core takes that from a small model, and no caller feels it."""
    slow: HealthPolicy = _SHARE_OF_SLOW
    """When the share of slow answers is too large."""
    wrong: HealthPolicy = _SHARE_OF_WRONG
    """How many late labels are looked at. At what share of wrong answers they tell is worked out for each release …"""
    wrong_margin: float = 0.15
    """… this much above its own share of wrong answers on validation data; a third of that is granted to labels that
    are wrong themselves."""
    unanswered: HealthPolicy = _SHARE_OF_NO_ANSWER
    """When the share of shed calls, or of hopeless texts, is worth a warning."""
    mended: HealthPolicy = _SHARE_OF_NO_ANSWER
    """When the share of repaired texts is worth a warning."""
    drift: DriftPolicy = field(default_factory=DriftPolicy)
    """When labels and words differ from the release's."""
    callers: CallerPolicy = field(default_factory=CallerPolicy)
    """How one caller's bad wave is kept from the others."""

    def __post_init__(self) -> None:
        """Refuse levels that would blame the model for load, and limits that every answer or none can pass."""
        for name in ("shed", "bad_input", "repaired"):
            if getattr(self, name) is Level.TRIP:
                raise ConfigError(
                    f"{name} is {Level.TRIP}, but that says nothing about the model; use {Level.WARN} or {Level.OFF}"
                )
        if not 1.0 <= self.latency_factor < math.inf:
            raise ConfigError(f"latency_factor is {self.latency_factor}; use 1 or more, 2 suits")
        if not 0.0 <= self.latency_slack_ms < math.inf:
            raise ConfigError(f"latency_slack_ms is {self.latency_slack_ms}; use 0 ms or more")
        if not 0.0 < self.wrong_margin < 1.0:
            raise ConfigError(f"wrong_margin is {self.wrong_margin}; it lies strictly between 0 and 1, 0.15 suits")

    def outcomes_at(self, level: Level) -> frozenset[Outcome]:
        """The outcomes whose signal has this level."""
        return frozenset(outcome for name, outcome in _OF_OUTCOME.items() if getattr(self, name) is level)

    @property
    def held_against(self) -> frozenset[Outcome]:
        """Outcomes that may take a model's trust away; a refused training step always does."""
        return self.outcomes_at(Level.TRIP) | {Outcome.REFUSED}

    def in_words(self) -> str:
        """Which signals may do what, like ``quality, error, late and latency trip; oov warns``."""
        names = [*_OF_OUTCOME, "latency", "label_mix", "oov", "feedback", "shed", "bad_input", "repaired"]
        by_level = {
            level: [name for name in names if getattr(self, name) is level] for level in (Level.TRIP, Level.WARN)
        }
        said = [f"{', '.join(held)} may {level}" for level, held in by_level.items() if held]
        return "; ".join(said) or "no signal is heard"


class HealthyBehaviour(Protocol):
    """How a release behaved on validation data; the bundle's baseline is one."""

    @property
    def samples(self) -> int:
        """How many answers the numbers rest on."""
        ...

    @property
    def weak_fraction(self) -> float:
        """Share of answers under the low-confidence limit."""
        ...

    @property
    def oov_fraction(self) -> float:
        """Share of all words outside the training vocabulary."""
        ...

    @property
    def oov_mean(self) -> float | None:
        """Mean of each text's own share; None: not measured."""
        ...

    @property
    def words_mean(self) -> float | None:
        """Mean number of words of a text; None: not measured."""
        ...

    @property
    def label_mix(self) -> Mapping[str, float]:
        """Share of each predicted label."""
        ...

    @property
    def latency_p95_ms(self) -> float | None:
        """95th percentile of the model's own time for one text; None: not measured."""
        ...

    @property
    def accuracy(self) -> float | None:
        """Share of answers to validation data that were right; None: not measured."""
        ...


def slow_limit_ms(policy: SignalPolicy, latency_p95_ms: float | None, texts: int) -> float:
    """The own time of a healthy model for ``texts`` texts in one call ends here; NaN when its own is not known.

    Several texts may take as long as one after the other: that a gateway has them travel together is not the model's
    fault. So a model that is slow per *call* is found best while few travel together.
    """
    if latency_p95_ms is None or not 0.0 < latency_p95_ms < math.inf or texts < 1:
        return math.nan
    healthy_ms = latency_p95_ms * texts
    return max(policy.latency_factor * healthy_ms, healthy_ms + policy.latency_slack_ms)


def is_slow(policy: SignalPolicy, latency_p95_ms: float | None, *, model_ms: float, texts: int) -> bool | None:
    """Whether a call was slow; None: its time or the release's is not known."""
    limit_ms = slow_limit_ms(policy, latency_p95_ms, texts)
    return None if math.isnan(limit_ms) or math.isnan(model_ms) else model_ms > limit_ms


@dataclass(frozen=True, kw_only=True)
class Armed:
    """A rule that fits a release, as far as it could be made to."""

    health: HealthPolicy
    signals: SignalPolicy
    refusals: tuple[str, ...]
    """Why parts run as they were given; each may trip on the healthy model. Empty: all fit."""
    unjudged: Mapping[str, str]
    """Signals that can't be judged for this release, and why."""


def armed(
    health: HealthPolicy,
    signals: SignalPolicy,
    release: str,
    healthy: HealthyBehaviour | None,
    *,
    max_risk: float = 1e-4,
) -> Armed:
    """Fit the rule to a release's measured healthy behaviour; None: to what any healthy model does.

    Never raises: a refusal is words in the result.
    """
    refusals: list[str] = []
    if healthy is not None and Outcome.WEAK in signals.outcomes_at(Level.TRIP):
        health, raised = fitted_policy(health, healthy.weak_fraction)
        if raised is not None:
            refusals.append(f"not armed as asked from release {release}: {raised}")
    signals, slow_refusal = _armed_latency(signals, max_risk)
    if slow_refusal is not None:
        refusals.append(slow_refusal)
    unjudged = {}
    if healthy is not None:
        signals, unknown = armed_for_labels(signals, release, healthy.accuracy)
        if unknown is not None:
            unjudged["feedback"] = unknown
    if (
        healthy is not None
        and signals.latency is not Level.OFF
        and math.isnan(slow_limit_ms(signals, healthy.latency_p95_ms, 1))
    ):
        unjudged["latency"] = f"release {release} has no measured latency; publish it again to have it watched"
    return Armed(health=health, signals=signals, refusals=tuple(refusals), unjudged=unjudged)


def _armed_latency(signals: SignalPolicy, max_risk: float) -> tuple[SignalPolicy, str | None]:
    """A share of slow answers that a healthy model reaches would trip on it."""
    risk = false_trip_risk(signals.slow, _HEALTHY_SLOW_FRACTION)
    if signals.latency is not Level.TRIP or risk <= max_risk:
        slow = signals.slow
        lifted = min(max(slow.ruled_out_bad_fraction, _HEALTHY_SLOW_FRACTION), slow.max_bad_fraction)
        try:
            return replace(signals, slow=replace(slow, ruled_out_bad_fraction=lifted)), None
        except ConfigError as error:
            return signals, f"the rule for slow answers is not armed: {error}"
    return replace(signals, latency=Level.WARN), (
        f"latency only warns: {signals.slow.max_bad_fraction:.2%} slow answers of {signals.slow.window_size} would "
        f"trip on a healthy model, of which up to {_HEALTHY_SLOW_FRACTION:.0%} take longer than its 95th percentile "
        f"(chance {risk:.2g} a window); raise slow.max_bad_fraction or its window_size"
    )


def armed_for_labels(signals: SignalPolicy, release: str, accuracy: float | None) -> tuple[SignalPolicy, str | None]:
    """The rule for late labels, fitted to a release's own accuracy; or no rule at all, and why."""
    if signals.feedback is Level.OFF:
        return signals, None
    if accuracy is None or not 0.0 <= accuracy <= 1.0:
        why = f"release {release} has no measured accuracy that late labels could be compared with"
        return replace(signals, feedback=Level.OFF), why
    wrong = 1.0 - accuracy
    limit, granted = wrong + signals.wrong_margin, wrong + signals.wrong_margin / 3
    if limit > 1.0:
        return replace(signals, feedback=Level.OFF), (
            f"{wrong:.0%} of release {release}'s answers are wrong on validation data: labels can't show it to be worse"
        )
    try:
        rule = replace(signals.wrong, max_bad_fraction=limit, ruled_out_bad_fraction=granted)
    except ConfigError as error:
        return replace(signals, feedback=Level.OFF), f"the rule for late labels does not fit release {release}: {error}"
    return replace(signals, wrong=rule), None
