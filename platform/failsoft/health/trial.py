"""A policy on trial: fed a healthy course and broken models, and said in words what came of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from failsoft.errors import ConfigError
from failsoft.health.monitor import HealthPolicy, armed_policy
from failsoft.health.outcome_log import read_log
from failsoft.health.simulation import MAX_TRIPS, Bools, Detection, Rate, Scenario, detection, draw, false_trips

_DAY_S = 86_400.0
_MAX_CALLS = 100_000_000
"""They take about 40 bytes each, and a minute or more in all."""


@dataclass(frozen=True, kw_only=True)
class Course:
    """The answers of a healthy model."""

    bad: Bools
    span_s: float
    """How long they took."""
    source: str
    """Where they come from, in words."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Lines of a log that were not counted, by the reason."""

    @property
    def bad_fraction(self) -> float:
        """Share of bad answers."""
        return float(self.bad.mean())


def drawn_course(healthy_fraction: float, *, calls_per_s: float, hours: float, seed: int) -> Course:
    """Answers drawn at a rate, each by itself.

    Raises:
        ConfigError: there would be none, or more than memory should hold.
    """
    wanted = calls_per_s * hours * 3600
    if not 1.0 <= wanted <= _MAX_CALLS:
        raise ConfigError(
            f"{calls_per_s:g} answers a second for {hours:g} h are {wanted:,.0f}; use 1 to {_MAX_CALLS:,}, as by "
            "another number of hours"
        )
    _refuse_seed(seed)
    calls = round(wanted)
    bad = draw(healthy_fraction, calls, np.random.default_rng(seed))
    words = f"{calls:,} answers drawn with {healthy_fraction:.2%} bad, {hours:g} h at {calls_per_s:g} a second"
    return Course(bad=bad, span_s=hours * 3600, source=words)


def course_of_log(path: Path, *, low_confidence: float, calls_per_s: float) -> Course:
    """Answers of a log, in its order; without times it counts as recorded at ``calls_per_s``.

    Raises:
        ConfigError: it can't be read, or holds no answer.
    """
    log = read_log(path, low_confidence=low_confidence)
    bad = np.array(log.bad, dtype=np.bool_)
    span_s = log.span_s if log.span_s is not None else len(bad) / calls_per_s
    when = "by its own times" if log.span_s is not None else f"taken at {calls_per_s:g} a second"
    words = f"{len(bad):,} answers of {path.name}, {bad.mean():.2%} bad, {span_s / 3600:.2f} h {when}"
    return Course(bad=bad, span_s=span_s, source=words, left_out=log.left_out)


@dataclass(frozen=True, kw_only=True)
class TrialPlan:
    """What is tried."""

    policy: HealthPolicy
    """As it is given; it is armed from the healthy course, as serving does it from a release's baseline."""
    scenario: Scenario
    max_false_trips_per_day: float = 1.0
    """More than these are too many."""
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse a bound that everything passes."""
        if not 0.0 <= self.max_false_trips_per_day < math.inf:
            raise ConfigError(f"max_false_trips_per_day is {self.max_false_trips_per_day}; use 0 or more, 1 suits")
        _refuse_seed(self.seed)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What came of it."""

    plan: TrialPlan
    course: Course
    policy: HealthPolicy
    """The rule in force: armed, unless it was refused."""
    refusal: str | None
    """Why it could not be armed from this healthy model; None: it could."""
    trips: Rate
    noticed: Detection

    @property
    def misfit(self) -> str | None:
        """Why nobody should arm this policy; None: it fits."""
        if self.refusal is not None:
            return self.refusal
        answers, window = len(self.course.bad), self.policy.window_size
        if answers < window:
            return f"only {answers} answers of the healthy model are known, less than one window of {window}; give more"
        if self.trips.per_day > self.plan.max_false_trips_per_day:
            return f"it trips on the healthy model {self.trips.per_day:.1f} times a day"
        if self.noticed.quantile(0.99) is None:
            total = self.noticed.not_noticed + len(self.noticed.calls)
            return f"it missed {self.noticed.not_noticed} of {total} broken models"
        return None

    @property
    def fits(self) -> bool:
        """Whether the policy may be armed."""
        return self.misfit is None

    def in_words(self) -> list[str]:
        """For the console, a line each."""
        low, high = self.trips.bounds()
        scenario = self.plan.scenario
        lines = [
            f"rule       {self.policy.in_words()}",
            f"watched by {_watchers(scenario.gateways)}",
            f"healthy    {self.course.source}",
            f"           false trips: {self.trips.events}, {self.trips.per_day:.2f} a day "
            f"(95 %: {low:.2f} – {high:.2f}; more hours narrow it)",
            f"broken     {scenario.broken_fraction:.0%} bad answers, {scenario.incidents} incidents at "
            f"{scenario.calls_per_s:g} a second",
            f"           noticed after {self._noticed(0.5)} (median), {self._noticed(0.99)} (99 %)",
        ]
        lines += [f"left out   {count:,} lines: {why}" for why, count in self.course.left_out.items()]
        return [*lines, f"verdict    {'it fits' if self.misfit is None else f'do not arm it: {self.misfit}'}"]

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        low, high = self.trips.bounds()
        scenario = self.plan.scenario
        return {
            "rule": self.policy.in_words(),
            "fits": self.fits,
            "misfit": self.misfit,
            "healthy": {
                "source": self.course.source,
                "answers": len(self.course.bad),
                "bad_fraction": self.course.bad_fraction,
                "hours": self.course.span_s / 3600,
                "left_out": dict(self.course.left_out),
            },
            "false_trips": {"count": self.trips.events, "per_day": self.trips.per_day, "per_day_95": [low, high]},
            "detection": {
                "broken_fraction": scenario.broken_fraction,
                "calls_per_s": scenario.calls_per_s,
                "gateways": scenario.gateways,
                "incidents": scenario.incidents,
                "not_noticed": self.noticed.not_noticed,
                "calls": {name: _nth(self.noticed, share, 0) for name, share in _SHARES.items()},
                "seconds": {name: _nth(self.noticed, share, 1) for name, share in _SHARES.items()},
            },
        }

    def _noticed(self, share: float) -> str:
        found = self.noticed.quantile(share)
        return "never" if found is None else f"{found[0]:.0f} answers, {found[1]:.2f} s"


_SHARES = {"p50": 0.5, "p99": 0.99}


def run_trial(course: Course, plan: TrialPlan) -> Trial:
    """Arm the policy from the healthy course, count its false trips there, and break the model many times."""
    rng = np.random.default_rng([plan.seed, 1])
    try:
        policy, refusal = armed_policy(plan.policy, course.bad_fraction), None
    except ConfigError as error:
        policy, refusal = plan.policy, str(error)
    trips = false_trips(policy, course.bad, plan.scenario.gateways, rng)
    return Trial(
        plan=plan,
        course=course,
        policy=policy,
        refusal=refusal,
        trips=Rate(events=len(trips), days=_looked_at(course, trips) * course.span_s / _DAY_S),
        noticed=detection(policy, course.bad, plan.scenario, rng),
    )


def _looked_at(course: Course, trips: list[int]) -> float:
    """The share of a course in which these trips were found: not all, where it has more than are counted."""
    return (trips[-1] + 1) / len(course.bad) if len(trips) >= MAX_TRIPS else 1.0


def _refuse_seed(seed: int) -> None:
    if seed < 0:
        raise ConfigError(f"seed is {seed}; use 0 or more")


def _nth(noticed: Detection, share: float, place: int) -> float | None:
    found = noticed.quantile(share)
    return None if found is None else found[place]


def _watchers(gateways: int) -> str:
    if gateways == 1:
        return "one window"
    return f"{gateways} gateways' own windows and the controller's over all of them"
