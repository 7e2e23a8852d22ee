"""The health monitor that training and serving share: outcomes in, a verdict out.

Serving feeds it one outcome for each answer of a model and degrades on the verdict; training feeds it one outcome for
each step and rolls back or stops on it. It judges only; whoever owns it acts.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from failsoft.errors import ConfigError
from failsoft.health.sequential import binomial_tail
from failsoft.health.window import Outcome, SlidingWindow

BAD: frozenset[Outcome] = frozenset({Outcome.WEAK, Outcome.ERROR, Outcome.LATE, Outcome.REFUSED})
"""Outcomes that speak against the one who is watched. SHED and BAD_INPUT do not: they are never in the window."""

SILENT: frozenset[Outcome] = frozenset({Outcome.SHED, Outcome.BAD_INPUT})
"""Outcomes that say nothing about the one who is watched."""


_GOOD = Outcome.GOOD


class Status(StrEnum):
    """What the window says."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    NO_VERDICT = "no verdict"
    """Too few samples. It holds; it never passes."""


@dataclass(frozen=True, kw_only=True)
class HealthPolicy:
    """When a window of outcomes is bad enough. The defaults are serving's."""

    window_size: int = 100
    """Judge the last so many outcomes."""
    min_samples: int = 20
    """Below this there is no verdict."""
    max_bad_fraction: float = 0.20
    """At this share of bad outcomes the verdict is DEGRADED, if chance is ruled out too."""
    ruled_out_bad_fraction: float = 0.05
    """The bad rate of a healthy model. DEGRADED needs evidence that the true rate is above it, which keeps a window
    that has just begun to fill from tripping on chance (a healthy model has 4 bad of 20 in 1.6 % of starts)."""
    chance_alpha: float = 1e-3
    """How improbable the window must be at ``ruled_out_bad_fraction`` before chance counts as ruled out."""
    warn_bad_fraction: float | None = None
    """Above this share the verdict carries a warning."""
    max_consecutive_bad: int | None = None
    """So many bad outcomes in a row are DEGRADED whatever the window says, however short."""

    def __post_init__(self) -> None:
        """Refuse settings that can never trip or always do."""
        if self.window_size < self.min_samples:
            raise ConfigError(
                f"window_size is {self.window_size}, below min_samples {self.min_samples}: such a window would never "
                "be judged; make the window at least as large"
            )
        if self.min_samples < 1:
            raise ConfigError(f"min_samples is {self.min_samples}; no verdict rests on fewer than 1 sample")
        if not 0.0 < self.max_bad_fraction <= 1.0:
            raise ConfigError(f"max_bad_fraction is {self.max_bad_fraction}; it is a share above 0 and up to 1")
        if not 0.0 <= self.ruled_out_bad_fraction <= self.max_bad_fraction:
            raise ConfigError(
                f"ruled_out_bad_fraction is {self.ruled_out_bad_fraction}; a healthy model's rate lies between 0 and "
                f"max_bad_fraction ({self.max_bad_fraction})"
            )
        if not 0.0 < self.chance_alpha < 1.0:
            raise ConfigError(f"chance_alpha is {self.chance_alpha}; a probability strictly between 0 and 1")
        if self.max_consecutive_bad is not None and self.max_consecutive_bad < 1:
            raise ConfigError(f"max_consecutive_bad is {self.max_consecutive_bad}; use 1 or more, or None for no limit")
        if self.warn_bad_fraction is not None and not 0.0 <= self.warn_bad_fraction < 1.0:
            raise ConfigError(f"warn_bad_fraction is {self.warn_bad_fraction}; a share from 0 to below 1, or None")
        self._refuse_deaf()

    def _refuse_deaf(self) -> None:
        """A window that is bad from end to end must be more than chance, or else none ever is."""
        by_chance = self.ruled_out_bad_fraction**self.window_size
        if self.max_consecutive_bad is None and not by_chance <= self.chance_alpha:
            raise ConfigError(
                f"window_size is {self.window_size}, and {self.window_size} bad outcomes of as many have the chance "
                f"{by_chance:.2g} in a healthy model with {self.ruled_out_bad_fraction:.2%} of them, above "
                f"chance_alpha {self.chance_alpha:.2g}: this would never trip; make the window larger"
            )

    def in_words(self) -> str:
        """The effective rule, for logs and consoles."""
        return (
            f"degrade when at least {self.max_bad_fraction:.2%} of the last {self.window_size} outcomes are bad "
            f"(no verdict below {self.min_samples}), once chance at {self.ruled_out_bad_fraction:.2%} is ruled out"
        )


class Verdict(NamedTuple):
    """What the monitor thinks, and why. Not a dataclass: one is made for every answer and every step."""

    status: Status
    bad: int
    total: int
    consecutive_bad: int
    warning: bool
    """The bad share is above ``warn_bad_fraction``."""
    policy: HealthPolicy
    undecided: bool = False
    """Most of what is bad is one caller's, and the others have not shown yet whether it is that caller or the model."""

    @property
    def bad_fraction(self) -> float | None:
        """Share of bad outcomes in the window; None without any."""
        return self.bad / self.total if self.total else None

    @property
    def in_a_row(self) -> bool:
        """Whether the bad outcomes in a row alone are too many."""
        limit = self.policy.max_consecutive_bad
        return limit is not None and self.consecutive_bad >= limit

    @property
    def reason(self) -> str:
        """Why, in words; worked out only when somebody reads it."""
        if self.in_a_row:
            return f"{self.consecutive_bad} bad outcomes in a row"
        if self.status is Status.NO_VERDICT:
            return f"only {self.total} of at least {self.policy.min_samples} samples"
        share = f"{self.bad} bad of {self.total} ({self.bad / self.total:.2%})"
        if self.status is Status.DEGRADED:
            return f"{share}, limit {self.policy.max_bad_fraction:.2%}"
        if self.undecided:
            return f"{share}, most of it one caller's: waiting for what the others' answers show"
        if self.bad / self.total < self.policy.max_bad_fraction:
            return f"{share}, below {self.policy.max_bad_fraction:.2%}"
        return f"{share}, which a healthy {self.policy.ruled_out_bad_fraction:.2%} may show by chance"


@dataclass(kw_only=True)
class HealthMonitor:
    """Counts outcomes in a window and judges them by a policy. O(1) work for each."""

    policy: HealthPolicy = field(default_factory=HealthPolicy)
    counts_as_bad: frozenset[Outcome] = BAD
    """Outcomes held against the one who is watched. SHED and BAD_INPUT are never counted; all others are good."""

    def __post_init__(self) -> None:
        """Start with an empty window."""
        self._window = SlidingWindow(self.policy.window_size)
        self._bad = 0
        self._consecutive_bad = 0
        self._chance: dict[tuple[int, int], bool] = {}

    def record(self, outcome: Outcome) -> None:
        """Count one outcome. SHED and BAD_INPUT leave the window as it is.

        Most outcomes are GOOD, and ``is`` asks no hash of them: an enum's is computed in Python each time.
        """
        if outcome is _GOOD:
            left = self._window.record(outcome)
            if left is not _GOOD and left in self.counts_as_bad:
                self._bad -= 1
            self._consecutive_bad = 0
        elif outcome not in SILENT:
            self._record_another(outcome)

    def _record_another(self, outcome: Outcome) -> None:
        bad, left = outcome in self.counts_as_bad, self._window.record(outcome)
        self._bad += bad - (left is not _GOOD and left in self.counts_as_bad)
        self._consecutive_bad = self._consecutive_bad + 1 if bad else 0

    def kinds(self) -> dict[Outcome, int]:
        """How many outcomes of each kind the window holds, by a walk over it; for reasons that people read."""
        return self._window.snapshot().counts

    def clear(self) -> None:
        """Start anew: another plan, other weights, or a rollback."""
        self._window.clear()
        self._bad = self._consecutive_bad = 0

    def forget_streak(self) -> None:
        """End the run of consecutive bad outcomes, as after a rollback, and keep the window."""
        self._consecutive_bad = 0

    def verdict(self) -> Verdict:
        """Judge the window as it is now."""
        policy, bad, total = self.policy, self._bad, len(self._window)
        warn = policy.warn_bad_fraction
        warning = warn is not None and total >= policy.min_samples and bad / total > warn
        return Verdict(self._judge(bad, total), bad, total, self._consecutive_bad, warning, policy)

    def _judge(self, bad: int, total: int) -> Status:
        policy = self.policy
        if policy.max_consecutive_bad is not None and self._consecutive_bad >= policy.max_consecutive_bad:
            return Status.DEGRADED
        if total < policy.min_samples:
            return Status.NO_VERDICT
        if bad / total < policy.max_bad_fraction:  # 0.07 * 100 is above 7, so the share is compared and not the count
            return Status.HEALTHY
        return Status.DEGRADED if self._chance_ruled_out(bad, total) else Status.HEALTHY

    def _chance_ruled_out(self, bad: int, total: int) -> bool:
        key = (bad, total)
        if key not in self._chance:
            if len(self._chance) > 4096:  # a window of 100,000 could otherwise remember without bound
                self._chance.clear()
            tail = binomial_tail(bad, total, self.policy.ruled_out_bad_fraction)
            self._chance[key] = tail <= self.policy.chance_alpha
        return self._chance[key]


def false_trip_risk(policy: HealthPolicy, healthy_bad_fraction: float) -> float:
    """P(one full window of a healthy model reaches the limit): what arming this policy would cost."""
    size = policy.window_size
    needed = next(bad for bad in range(size + 1) if bad / size >= policy.max_bad_fraction)
    return binomial_tail(needed, size, healthy_bad_fraction)


def armed_policy(policy: HealthPolicy, healthy_bad_fraction: float, *, max_risk: float = 1e-4) -> HealthPolicy:
    """The policy, armed with a release's measured healthy bad rate.

    Raises:
        ConfigError: the rate is not a number, or the limit would trip on the healthy model.
    """
    if not 0.0 <= healthy_bad_fraction <= 1.0:
        raise ConfigError(f"healthy_bad_fraction is {healthy_bad_fraction}; measure it on validation data, 0 to 1")
    risk = false_trip_risk(policy, healthy_bad_fraction)
    if not risk <= max_risk:
        raise ConfigError(
            f"max_bad_fraction {policy.max_bad_fraction:.2%} over {policy.window_size} outcomes would trip on this "
            f"healthy model, which has {healthy_bad_fraction:.2%} bad answers (chance {risk:.2g} a window); raise "
            "max_bad_fraction, lower the confidence limit, or calibrate the release"
        )
    healthy = max(policy.ruled_out_bad_fraction, healthy_bad_fraction)
    return replace(policy, ruled_out_bad_fraction=min(healthy, policy.max_bad_fraction))


_DAILY_RISK = 2e-7
"""P(a full window of a healthy model trips) at which a day of 50 answers a second has less than one false trip: windows
that overlap trip in clumps of some thirty."""


def fitted_policy(policy: HealthPolicy, healthy_bad_fraction: float) -> tuple[HealthPolicy, str | None]:
    """The policy armed as :func:`armed_policy` does, with the limit raised where the healthy model needs that.

    A limit that trips on a healthy model does so thousands of times a day; one that is higher still sees a model that
    has gone bad. Whoever reads the status must see that it is another limit than the one asked for.

    Returns:
        The policy to use, and why it is not the one that was given; None: it is.
    """
    if not 0.0 <= healthy_bad_fraction <= 1.0:
        return policy, f"healthy_bad_fraction is {healthy_bad_fraction}; measure it on validation data, 0 to 1"
    asked = policy.max_bad_fraction
    limits = [asked, *(percent / 100 for percent in range(1, 100) if percent / 100 > asked)]
    for limit in limits:
        fits = replace(policy, max_bad_fraction=limit)
        if false_trip_risk(fits, healthy_bad_fraction) <= _DAILY_RISK:
            armed = armed_policy(fits, healthy_bad_fraction)
            return armed, None if limit == asked else (
                f"max_bad_fraction {asked:.2%} over {policy.window_size} outcomes would trip on this healthy model, "
                f"which has {healthy_bad_fraction:.2%} bad answers; {limit:.0%} is used. Calibrate the release, lower "
                "the confidence limit or enlarge the window to have it watched more closely"
            )
    return policy, (
        f"{healthy_bad_fraction:.2%} of this healthy model's answers are bad: no limit tells it from a broken one; "
        "calibrate the release or lower the confidence limit"
    )
