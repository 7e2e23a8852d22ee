"""The stages of trust: which moves exist, and what each stage gives and asks for. Judged in ``judgement.py``.

::

    SERVING ──trip──> DEGRADED ──rest over──> SHADOW ──pass──> CANARY ──> RAMP_20 ──> RAMP_50 ──> SERVING
                          ^                      │               │           │           │
                          └────────── trip ──────┴───────────────┴───────────┴───────────┘
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from failsoft.errors import ConfigError
from failsoft.health.backoff import BackoffPolicy
from failsoft.health.monitor import HealthPolicy
from failsoft.health.sequential import samples_needed
from failsoft.health.signals import Level, SignalPolicy
from failsoft.serving.plan.plan import Stage

_S = Stage

MOVES: Mapping[Stage, frozenset[Stage]] = {
    _S.SERVING: frozenset({_S.DEGRADED, _S.SHADOW, _S.REJECTED}),
    _S.DEGRADED: frozenset({_S.DEGRADED, _S.SHADOW, _S.REJECTED}),
    _S.SHADOW: frozenset({_S.CANARY, _S.DEGRADED, _S.REJECTED, _S.SHADOW}),
    _S.CANARY: frozenset({_S.RAMP_20, _S.DEGRADED, _S.REJECTED, _S.SHADOW}),
    _S.RAMP_20: frozenset({_S.RAMP_50, _S.DEGRADED, _S.REJECTED, _S.SHADOW}),
    _S.RAMP_50: frozenset({_S.SERVING, _S.DEGRADED, _S.REJECTED, _S.SHADOW}),
    _S.REJECTED: frozenset({_S.DEGRADED, _S.SHADOW}),
}
"""Every move there is. To SHADOW: the rest is over, or another release begins its way. DEGRADED to itself: an order
of an operator. To REJECTED: a release on trial failed too often or was called off, or one in service was rolled back.
From REJECTED to
DEGRADED: the old release, which serves, fell ill or was held back."""

NEXT: Mapping[Stage, Stage] = {
    _S.SHADOW: _S.CANARY,
    _S.CANARY: _S.RAMP_20,
    _S.RAMP_20: _S.RAMP_50,
    _S.RAMP_50: _S.SERVING,
}
"""Where a pass leads. No stage is ever skipped."""

ON_TRIAL: frozenset[Stage] = frozenset(NEXT)
"""Stages in which the subject has to prove itself."""

WATCHED: frozenset[Stage] = ON_TRIAL | {_S.SERVING}
"""Stages in which the subject answers, callers or copies, and so can fall."""


@dataclass(frozen=True, kw_only=True)
class StageRule:
    """What one stage gives to the subject and what it asks for."""

    share: float
    """Share of live traffic; 0 in SHADOW."""
    min_time_s: float
    """Counted only while answers of the subject arrive."""
    min_samples: int
    """Answers of the subject in this stage."""

    def __post_init__(self) -> None:
        """Refuse stages that anything would pass."""
        if not 0.0 <= self.share < 1.0:
            raise ConfigError(f"share is {self.share}; a stage on trial gets from 0 up to (not including) 1")
        if not (self.min_time_s > 0.0 and math.isfinite(self.min_time_s)):
            raise ConfigError(f"min_time_s is {self.min_time_s}; a stage takes some time, above 0")
        if not (self.min_samples >= 1 and self.min_samples % 1 == 0):
            raise ConfigError(f"min_samples is {self.min_samples}; use a whole number, no stage passes on less than 1")


def _rules(times_s: tuple[float, ...], samples: tuple[int, ...]) -> dict[Stage, StageRule]:
    shares = (0.0, 0.05, 0.20, 0.50)
    each = zip(NEXT, shares, times_s, samples, strict=True)
    return {stage: StageRule(share=share, min_time_s=time_s, min_samples=count) for stage, share, time_s, count in each}


@dataclass(frozen=True, kw_only=True)
class StagePolicy:
    """How a subject loses trust and earns it again. The defaults are production's."""

    rest: BackoffPolicy = field(
        default_factory=lambda: BackoffPolicy(first_s=60.0, factor=2.0, cap_s=3600.0, jitter_fraction=0.1)
    )
    """How long DEGRADED lasts after the first, second, … trip."""
    quiet_s: float = 3600.0
    """After so much time in SERVING with answers arriving and no trip, the rest starts from its first value again."""
    rules: Mapping[Stage, StageRule] = field(
        default_factory=lambda: _rules((900.0, 300.0, 300.0, 300.0), (450, 100, 200, 400))
    )
    """One for each stage on trial."""
    mirror_share: float = 0.01
    """Share of live traffic copied in SHADOW. Raised by itself when that is too little to reach ``min_samples`` in
    ``min_time_s``."""
    max_gap_s: float = 30.0
    """A longer time without answers of the subject stops a stage's clock, and nothing passes meanwhile."""
    margin: float = 0.05
    """So much more of its answers may be bad than of the stand-in's (or of the healthy baseline) and be no worse."""
    alpha: float = 0.05
    """Chance that the comparison is ever wrong in a stage, however often one looks (see
    :mod:`failsoft.health.sequential`)."""
    reject_after: int = 3
    """So many trips of a release on trial end its way, when an older release serves."""
    health: HealthPolicy = field(default_factory=HealthPolicy)
    """The trip, armed in every stage."""
    signals: SignalPolicy = field(default_factory=SignalPolicy)
    """What else is heard of a model (its time, its labels, unknown words), and which of it may trip."""
    by_hand: bool = False
    """A stage that was passed waits for an operator to let the release on. It still falls by itself."""
    keep_every_s: float = 5.0
    """Timers and counts are stored this often; a crash loses no more than that of them, and never a move."""

    def __post_init__(self) -> None:
        """Refuse a way back that has a hole, goes down, or could never be passed."""
        if set(self.rules) != ON_TRIAL:
            raise ConfigError(f"rules name {sorted(self.rules)}; give exactly one for each of {sorted(ON_TRIAL)}")
        shares = [self.rules[stage].share for stage in NEXT]
        if shares[0] != 0.0 or any(not low < high for low, high in pairwise(shares)):
            raise ConfigError(f"shares are {shares}; SHADOW has 0 and each later stage more than the one before")
        if not 0.0 < self.mirror_share <= 1.0:
            raise ConfigError(f"mirror_share is {self.mirror_share}; SHADOW needs copies, use above 0 up to 1")
        for name in ("quiet_s", "max_gap_s", "keep_every_s"):
            if not 0.0 < getattr(self, name) < math.inf:
                raise ConfigError(f"{name} is {getattr(self, name)}; use more than 0 s, and a time that ends")
        if not (self.reject_after >= 1 and self.reject_after % 1 == 0):
            raise ConfigError(f"reject_after is {self.reject_after}; a release falls at least once before that")
        self._refuse_hasty()
        self._refuse_undecidable()

    def _refuse_hasty(self) -> None:
        """No rest, or a silence as long as a stage, would let a sick model come back for nothing."""
        if not 0.0 < self.rest.first_s <= self.rest.cap_s < math.inf:
            raise ConfigError(
                f"rest goes from first_s {self.rest.first_s} to cap_s {self.rest.cap_s}; what fell rests for some "
                "time, above 0 s, and not for ever"
            )
        if not self.quiet_s >= self.rest.first_s:
            raise ConfigError(
                f"quiet_s is {self.quiet_s}, shorter than the first rest ({self.rest.first_s} s): a model that falls "
                "again and again would be forgiven each time, and its rest would never grow; use more"
            )
        shortest_s = min(rule.min_time_s for rule in self.rules.values())
        if self.max_gap_s > shortest_s:
            raise ConfigError(
                f"max_gap_s is {self.max_gap_s}, longer than the shortest stage ({shortest_s} s): two answers would "
                "fill it; use less"
            )

    def _refuse_undecidable(self) -> None:
        if not 0.0 < self.margin < 1.0:
            raise ConfigError(f"margin is {self.margin}; it lies strictly between 0 and 1, 0.05 suits")
        if not 0.0 < self.alpha < 0.5:
            raise ConfigError(
                f"alpha is {self.alpha}; it lies strictly between 0 and 0.5, above that one may toss a coin"
            )
        healthy = self.health.ruled_out_bad_fraction
        if not healthy + self.margin < 1.0:
            raise ConfigError(
                f"margin is {self.margin}: with {healthy:.1%} bad in a healthy model nothing is worse by that; use less"
            )
        needed = samples_needed(healthy, margin=self.margin, alpha=self.alpha)
        shadow = self.rules[Stage.SHADOW].min_samples
        if shadow < needed:
            raise ConfigError(
                f"min_samples in SHADOW is {shadow}, but even a healthy model ({healthy:.1%} bad) shows that it is no "
                f"worse by margin {self.margin} at alpha {self.alpha} only with {needed} answers; raise min_samples "
                "or the margin"
            )

    def share_of(self, stage: Stage) -> float:
        """The subject's share of live traffic in a stage, when capacity allows."""
        if stage is Stage.SERVING:
            return 1.0
        return self.rules[stage].share if stage in ON_TRIAL else 0.0


def stage_named(name: str) -> Stage:
    """The stage of a name, as ``ramp_20``.

    Raises:
        ConfigError: there is no such stage.
    """
    try:
        return Stage(name)
    except ValueError as error:
        raise ConfigError(f"there is no stage {name!r}; use one of {', '.join(Stage)}") from error


def stage_policy(profile: str) -> StagePolicy:
    """The policy of a named profile.

    Raises:
        ConfigError: there is no such profile.
    """
    if profile == "production":
        return StagePolicy()
    if profile == "by-hand":
        return StagePolicy(by_hand=True)
    if profile == "drill":
        return _drill()
    raise ConfigError(
        f"there is no profile {profile!r}; use production, by-hand to let each stage pass yourself, or drill for times "
        "in seconds"
    )


def _drill() -> StagePolicy:
    """Seconds instead of minutes, decidable at about 60 requests a second; no one should serve people with it."""
    return StagePolicy(
        rest=BackoffPolicy(first_s=2.0, factor=2.0, cap_s=16.0, jitter_fraction=0.1),
        quiet_s=30.0,
        rules=_rules((3.0, 2.0, 2.0, 2.0), (70, 10, 20, 40)),
        mirror_share=0.5,
        max_gap_s=2.0,
        margin=0.15,
        alpha=0.1,
        keep_every_s=1.0,
        signals=SignalPolicy(latency=Level.WARN),  # on a laptop models, gateways and clients share two cores
    )
