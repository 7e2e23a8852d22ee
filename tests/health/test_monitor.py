"""When a window of outcomes is ill: at the limit, never by chance, never for want of samples."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.errors import ConfigError
from failsoft.health.monitor import (
    BAD,
    SILENT,
    HealthMonitor,
    HealthPolicy,
    Status,
    armed_policy,
    false_trip_risk,
    fitted_policy,
)
from failsoft.health.simulation import draw, false_trips
from failsoft.health.window import Outcome

GOOD, WEAK = Outcome.GOOD, Outcome.WEAK
SURE = HealthPolicy(ruled_out_bad_fraction=0.0)


def fed(policy: HealthPolicy, *outcomes: Outcome) -> HealthMonitor:
    monitor = HealthMonitor(policy=policy)
    for outcome in outcomes:
        monitor.record(outcome)
    return monitor


def test_too_few_samples_are_no_verdict_however_bad() -> None:
    assert fed(HealthPolicy(), *[WEAK] * 19).verdict().status is Status.NO_VERDICT
    assert fed(HealthPolicy(), *[WEAK] * 20).verdict().status is Status.DEGRADED


def test_no_outcomes_are_no_verdict_and_no_rate() -> None:
    verdict = fed(HealthPolicy()).verdict()
    assert (verdict.status, verdict.bad_fraction) == (Status.NO_VERDICT, None)


@pytest.mark.parametrize("percent", range(1, 101))
def test_the_limit_itself_is_ill_and_one_less_is_not(percent: int) -> None:
    policy = HealthPolicy(max_bad_fraction=percent / 100, ruled_out_bad_fraction=0.0)
    at_limit = fed(policy, *[GOOD] * (100 - percent), *[WEAK] * percent).verdict()
    below = fed(policy, *[GOOD] * (101 - percent), *[WEAK] * (percent - 1)).verdict()
    assert (at_limit.status, below.status) == (Status.DEGRADED, Status.HEALTHY)


@pytest.mark.parametrize("outcome", sorted(SILENT))
def test_shed_load_and_bad_input_say_nothing_about_the_model(outcome: Outcome) -> None:
    monitor = fed(SURE, *[WEAK] * 10, *[outcome] * 1000)
    assert (monitor.verdict().total, monitor.verdict().consecutive_bad) == (10, 10)


@pytest.mark.parametrize("outcome", sorted(BAD))
def test_each_bad_outcome_counts_as_bad(outcome: Outcome) -> None:
    assert fed(SURE, *[outcome] * 20).verdict().status is Status.DEGRADED


def test_a_window_that_has_just_begun_does_not_trip_on_chance() -> None:
    """4 bad of 20 are 20 %, and a healthy model with 5 % shows that in 1.6 % of its starts."""
    verdict = fed(HealthPolicy(), *[WEAK] * 4, *[GOOD] * 16).verdict()
    assert verdict.status is Status.HEALTHY
    assert "by chance" in verdict.reason


def test_a_healthy_model_trips_in_fewer_than_one_start_of_a_hundred() -> None:
    rng = random.Random(0)
    trips = 0
    for _ in range(300):
        monitor = HealthMonitor()
        trips += any(_records(monitor, rng, bad=0.05) for _ in range(150))
    assert trips <= 3


def _records(monitor: HealthMonitor, rng: random.Random, *, bad: float) -> bool:
    monitor.record(WEAK if rng.random() < bad else GOOD)
    return monitor.verdict().status is Status.DEGRADED


@pytest.mark.parametrize(("bad", "within"), [(0.4, 60), (1.0, 20)])
def test_a_broken_model_is_noticed_soon(bad: float, within: int) -> None:
    rng = random.Random(0)
    for _ in range(50):
        monitor = HealthMonitor()
        assert any(_records(monitor, rng, bad=bad) for _ in range(within))


def test_consecutive_bad_outcomes_trip_before_the_minimum_is_reached() -> None:
    policy = HealthPolicy(max_consecutive_bad=5)
    monitor = fed(policy, GOOD, *[Outcome.REFUSED] * 5)
    assert monitor.verdict().status is Status.DEGRADED
    monitor.forget_streak()
    assert (monitor.verdict().status, monitor.verdict().total) == (Status.NO_VERDICT, 6)
    monitor.record(Outcome.REFUSED)
    assert monitor.verdict().consecutive_bad == 1


def test_a_good_outcome_ends_a_streak() -> None:
    assert fed(HealthPolicy(max_consecutive_bad=2), WEAK, GOOD, WEAK).verdict().status is Status.NO_VERDICT


def test_a_warning_comes_before_the_limit() -> None:
    policy = HealthPolicy(warn_bad_fraction=0.1, ruled_out_bad_fraction=0.0)
    assert not fed(policy, *[WEAK] * 10, *[GOOD] * 90).verdict().warning
    assert fed(policy, *[WEAK] * 11, *[GOOD] * 89).verdict().warning


def test_a_cleared_monitor_remembers_nothing() -> None:
    monitor = fed(SURE, *[WEAK] * 50)
    monitor.clear()
    assert (monitor.verdict().status, monitor.verdict().consecutive_bad) == (Status.NO_VERDICT, 0)


@given(st.lists(st.sampled_from(list(Outcome)), max_size=150))
def test_a_verdict_is_never_degraded_without_enough_bad_outcomes(outcomes: list[Outcome]) -> None:
    verdict = fed(HealthPolicy(), *outcomes).verdict()
    counted = [outcome for outcome in outcomes if outcome not in SILENT][-100:]
    assert (verdict.bad, verdict.total) == (sum(outcome in BAD for outcome in counted), len(counted))
    assert verdict.status is not Status.DEGRADED or (verdict.total >= 20 and verdict.bad >= 0.2 * verdict.total)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"window_size": 5, "min_samples": 20}, "window_size is 5"),  # B11: elsewhere clamped in silence
        ({"min_samples": 0}, "min_samples is 0"),
        ({"max_bad_fraction": 0.0}, "max_bad_fraction is 0"),
        ({"max_bad_fraction": math.nan}, "max_bad_fraction is nan"),
        ({"ruled_out_bad_fraction": 0.3}, "ruled_out_bad_fraction is 0.3"),
        ({"chance_alpha": 0.0}, "chance_alpha is 0"),
        ({"max_consecutive_bad": 0}, "max_consecutive_bad is 0"),
        (
            {"window_size": 2, "min_samples": 2},
            "window_size is 2, and 2 bad outcomes of as many have the chance 0.0025",
        ),
        ({"window_size": 20, "max_bad_fraction": 1.0, "ruled_out_bad_fraction": 0.8}, "would never trip"),
        ({"warn_bad_fraction": math.nan}, "warn_bad_fraction is nan"),
        ({"warn_bad_fraction": 5.0}, "warn_bad_fraction is 5"),
    ],
)
def test_a_policy_that_can_never_trip_or_always_does_is_refused(wrong: dict[str, float], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        HealthPolicy(**wrong)  # type: ignore[arg-type]


@given(
    st.integers(1, 40),
    st.floats(0.01, 1.0),
    st.floats(0.0, 1.0),
    st.floats(1e-6, 0.5),
)
def test_whatever_policy_is_taken_a_model_that_only_fails_trips_it(
    size: int, limit: float, healthy: float, alpha: float
) -> None:
    try:
        policy = HealthPolicy(
            window_size=size,
            min_samples=1,
            max_bad_fraction=limit,
            ruled_out_bad_fraction=limit * healthy,
            chance_alpha=alpha,
        )
    except ConfigError:
        return
    assert fed(policy, *[WEAK] * size).verdict().status is Status.DEGRADED


def test_arming_raises_what_counts_as_chance_to_the_measured_rate() -> None:
    assert armed_policy(HealthPolicy(), 0.07).ruled_out_bad_fraction == 0.07
    assert armed_policy(HealthPolicy(), 0.01).ruled_out_bad_fraction == 0.05


@pytest.mark.parametrize("rate", [0.12, 0.5, 1.0])
def test_arming_refuses_a_limit_that_would_trip_on_the_healthy_model(rate: float) -> None:
    with pytest.raises(ConfigError, match="would trip on this healthy model"):
        armed_policy(HealthPolicy(), rate)


@pytest.mark.parametrize("rate", [math.nan, -0.1, 1.1])
def test_arming_refuses_a_rate_that_is_none(rate: float) -> None:
    with pytest.raises(ConfigError, match="healthy_bad_fraction is"):
        armed_policy(HealthPolicy(), rate)


@pytest.mark.parametrize("rate", [0.0, 0.01, 0.05, 0.07, 0.126, 0.3, 0.6])
def test_a_healthy_model_has_less_than_one_false_trip_a_day_and_a_broken_one_is_seen(rate: float) -> None:
    policy, raised = fitted_policy(HealthPolicy(), rate)
    assert (raised is None) is (rate <= 0.05)
    day, rng = 50 * 86_400, np.random.default_rng(3)
    assert len(false_trips(policy, draw(rate, day, rng), 1, rng)) <= 1
    assert fed(policy, *[WEAK] * 100).verdict().status is Status.DEGRADED


def test_a_limit_that_was_raised_is_said_and_none_is_made_up_where_none_fits() -> None:
    policy, raised = fitted_policy(HealthPolicy(), 0.126)
    assert policy.max_bad_fraction == 0.33
    assert "12.60% bad answers; 33% is used" in str(raised)
    for rate in (0.95, math.nan):
        given, why = fitted_policy(HealthPolicy(), rate)
        assert given == HealthPolicy()
        assert why


@pytest.mark.parametrize("percent", range(1, 100))
def test_the_risk_of_a_false_trip_counts_from_the_limit_itself(percent: int) -> None:
    at_limit = HealthPolicy(max_bad_fraction=percent / 100, ruled_out_bad_fraction=0.0)
    assert false_trip_risk(at_limit, 1.0) == pytest.approx(1.0)
    assert false_trip_risk(at_limit, percent / 100) > 0.5, "most windows of a model at the limit reach it"


def test_what_is_configured_not_to_count_is_good_and_still_ends_a_streak() -> None:
    monitor = HealthMonitor(policy=SURE, counts_as_bad=frozenset({Outcome.ERROR}))
    for outcome in (Outcome.ERROR, *[WEAK] * 30):
        monitor.record(outcome)
    assert (monitor.verdict().bad, monitor.verdict().total, monitor.verdict().consecutive_bad) == (1, 31, 0)
    assert monitor.kinds() == {Outcome.ERROR: 1, WEAK: 30}
