"""Windows judged in bulk trip where a monitor that is fed one by one trips; rates and detection are what they say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from failsoft.errors import ConfigError
from failsoft.health.monitor import HealthMonitor, HealthPolicy, Status
from failsoft.health.simulation import (
    BulkWindow,
    Rate,
    Scenario,
    Watchers,
    detection,
    draw,
    false_trips,
    needed_bad,
)
from failsoft.health.trial import Course, TrialPlan, run_trial
from failsoft.health.window import Outcome

policies = st.builds(
    lambda size, share, limit, healthy, streak: HealthPolicy(
        window_size=size,
        min_samples=max(1, int(size * share)),
        max_bad_fraction=limit,
        ruled_out_bad_fraction=min(limit * healthy, 0.999 * 0.05 ** (1 / size)),
        chance_alpha=0.05,
        max_consecutive_bad=streak,
    ),
    st.integers(1, 30),
    st.floats(0.0, 1.0),
    st.floats(0.05, 1.0),
    st.floats(0.0, 1.0),
    st.none() | st.integers(1, 8),
)
calls = st.lists(st.tuples(st.booleans(), st.integers(0, 2)), max_size=150)


def one_by_one(policy: HealthPolicy, answers: list[tuple[bool, int]]) -> list[int]:
    """The trips of real monitors: the controller's, and one for each gateway where there are several."""
    gateways = {gateway for _, gateway in answers}
    everywhere = HealthMonitor(policy=policy)
    own = {gateway: HealthMonitor(policy=policy) for gateway in gateways} if len(gateways) > 1 else {}
    trips = []
    for number, (bad, gateway) in enumerate(answers):
        watchers = [everywhere, *([own[gateway]] if own else [])]
        for watcher in watchers:
            watcher.record(Outcome.WEAK if bad else Outcome.GOOD)
        if any(watcher.verdict().status is Status.DEGRADED for watcher in watchers):
            trips.append(number)
            for watcher in (everywhere, *own.values()):
                watcher.clear()
    return trips


@settings(max_examples=200)
@given(policies, calls)
def test_bulk_windows_trip_where_real_monitors_do(policy: HealthPolicy, answers: list[tuple[bool, int]]) -> None:
    bad = np.array([each for each, _ in answers], dtype=np.bool_)
    gateway_of = np.array([gateway for _, gateway in answers], dtype=np.int64)
    assert list(Watchers(policy, bad, gateway_of).trips()) == one_by_one(policy, answers)


@given(policies, st.lists(st.booleans(), min_size=1, max_size=100), st.data())
def test_a_part_of_a_course_is_judged_as_in_the_whole(
    policy: HealthPolicy, bad: list[bool], data: st.DataObject
) -> None:
    """Long courses are looked at in chunks; where a chunk ends changes nothing."""
    window = BulkWindow(policy, np.array(bad, dtype=np.bool_))
    cut = data.draw(st.integers(0, len(bad)))
    whole = window.first_trip(0, len(bad), 0)
    before, after = window.first_trip(0, cut, 0), window.first_trip(cut, len(bad), 0)
    assert (before if before is not None else after) == whole


def test_the_fewest_bad_answers_that_trip_are_those_of_the_rule() -> None:
    needed = needed_bad(HealthPolicy())
    assert (needed[19], needed[20], needed[100]) == (20, 6, 20)


def test_a_day_at_fifty_a_second_has_no_false_trip_at_two_percent_and_some_at_eight() -> None:
    rng = np.random.default_rng(3)
    assert false_trips(HealthPolicy(), draw(0.02, 4_320_000, rng), 3, rng) == []
    many = false_trips(HealthPolicy(), draw(0.08, 500_000, rng), 1, rng)
    assert 1 <= len(many) <= 60


def test_a_broken_model_is_noticed_as_soon_as_the_arithmetic_says() -> None:
    """40 % bad after 2 %: 47 calls in the median, 71 in 99 of 100."""
    rng = np.random.default_rng(3)
    found = detection(HealthPolicy(), draw(0.02, 10_000, rng), Scenario(incidents=300), rng)
    median, most = found.quantile(0.5), found.quantile(0.99)
    assert found.not_noticed == 0
    assert median is not None
    assert most is not None
    assert 43 <= median[0] <= 51
    assert 60 <= most[0] <= 85
    assert median[1] == pytest.approx(median[0] / 50.0, rel=0.2)


def test_a_model_that_is_hardly_broken_is_said_not_to_be_noticed() -> None:
    rng = np.random.default_rng(3)
    scenario = Scenario(broken_fraction=0.05, incidents=20, give_up_calls=500)
    found = detection(HealthPolicy(), draw(0.02, 1000, rng), scenario, rng)
    assert found.not_noticed == 20
    assert found.quantile(0.5) is None


@pytest.mark.parametrize(("events", "low", "high"), [(0, 0.0, 3.689), (3, 0.619, 8.767), (100, 81.36, 121.63)])
def test_the_interval_of_a_rate_is_garwoods(events: int, low: float, high: float) -> None:
    assert Rate(events=events, days=1.0).bounds() == pytest.approx((low, high), abs=0.01)
    assert Rate(events=events, days=10.0).bounds() == pytest.approx((low / 10, high / 10), abs=0.01)


@pytest.mark.parametrize(
    "wrong",
    [
        {"broken_fraction": 0.0},
        {"broken_fraction": math.nan},
        {"calls_per_s": 0.0},
        {"gateways": 0},
        {"incidents": 0},
        {"give_up_calls": 0},
    ],
)
def test_what_can_not_be_simulated_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Scenario(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("share", [-0.1, 1.1, math.nan])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(ConfigError, match="healthy_fraction"):
        draw(share, 10, np.random.default_rng(0))


def test_a_wide_window_is_given_the_calls_that_it_takes() -> None:
    """40 % bad answers fill a fifth of 60,000 after 27,000 calls."""
    rng = np.random.default_rng(3)
    policy = HealthPolicy(window_size=60_000)
    found = detection(policy, draw(0.02, 60_000, rng), Scenario(incidents=2), rng)
    assert found.not_noticed == 0
    assert found.calls[0] > Scenario.give_up_calls


def test_a_course_with_more_trips_than_are_counted_is_rated_by_the_part_that_was_looked_at() -> None:
    """Each twenty answers trip: 100,000 trips in a day, of which the first tenth is counted."""
    bad = np.ones(2_000_000, dtype=np.bool_)
    policy = HealthPolicy(window_size=20, min_samples=20, ruled_out_bad_fraction=0.2)
    course = Course(bad=bad, span_s=86_400.0, source="a test")
    trial = run_trial(course, TrialPlan(policy=policy, scenario=Scenario(incidents=1)))
    assert trial.trips.events == 10_000
    assert trial.trips.per_day == pytest.approx(100_000)


def test_without_a_healthy_answer_nothing_can_break() -> None:
    with pytest.raises(ConfigError, match="no healthy outcome"):
        detection(HealthPolicy(), np.zeros(0, dtype=np.bool_), Scenario(), np.random.default_rng(0))
    with pytest.raises(ConfigError, match="each outcome comes from one"):
        Watchers(HealthPolicy(), np.zeros(3, dtype=np.bool_), np.zeros(2, dtype=np.int64))
