from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.errors import ConfigError
from failsoft.health.blocks import BlockMonitor
from failsoft.health.monitor import HealthPolicy, Status
from failsoft.health.sequential import Tally, binomial_tail, exact_lower_bound

SMALL = HealthPolicy(window_size=100, min_samples=10)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5)), max_size=60))
def test_the_window_holds_its_size_and_less_than_a_block_more_and_forgets_the_oldest(
    counts: list[tuple[int, int]],
) -> None:
    monitor = BlockMonitor(policy=SMALL, blocks=10)
    for good, bad in counts:
        monitor.count(good=good, bad=bad)
    verdict, everything = monitor.verdict(), sum(good + bad for good, bad in counts)
    assert min(everything, 100) <= verdict.total <= min(everything, 100 + 10 + 35)
    again = BlockMonitor(policy=SMALL, blocks=10)
    again.load_counts(json.loads(json.dumps(monitor.counts())))
    assert again.verdict() == verdict


def test_a_hundred_million_samples_take_a_few_numbers() -> None:
    monitor = BlockMonitor(policy=HealthPolicy(window_size=10_000_000, min_samples=100_000))
    for _ in range(100_000):
        monitor.count(good=1000)
    assert monitor.verdict().total == pytest.approx(10_000_000, rel=0.002)
    assert monitor.counts() == [[1000, 10_000, 0]]


@pytest.mark.parametrize(("bad", "status"), [(15, Status.HEALTHY), (25, Status.DEGRADED)])
def test_it_judges_as_any_monitor_does(bad: int, status: Status) -> None:
    monitor = BlockMonitor(policy=SMALL)
    monitor.count(good=100 - bad, bad=bad)
    assert monitor.verdict().status is status


def test_impossible_counts_are_refused() -> None:
    with pytest.raises(ConfigError, match="counted from 0"):
        BlockMonitor(policy=SMALL).count(good=-1)


@pytest.mark.parametrize(("bad", "total"), [(1, 10), (14, 12_000), (60, 20_000)])
def test_the_exact_bound_is_where_chance_is_just_ruled_out(bad: int, total: int) -> None:
    low = exact_lower_bound(Tally(bad=bad, total=total), alpha=0.025)
    assert binomial_tail(bad, total, low) == pytest.approx(0.025, rel=1e-6)
    assert exact_lower_bound(Tally(bad=0, total=total), alpha=0.025) == 0.0
