"""The interval that wastes least, from what checkpoints are seen to cost."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.errors import ConfigError
from failsoft.training.checkpoints.best_interval import BestInterval
from failsoft.training.checkpoints.cadence import expected_efficiency

HOUR_S = 3600.0


@given(
    stalls=st.lists(st.floats(min_value=0.0, max_value=30.0), min_size=1, max_size=20),
    nodes=st.integers(min_value=1, max_value=2000),
)
def test_no_other_interval_near_it_wastes_less_in_dalys_model(stalls: list[float], nodes: int) -> None:
    best = BestInterval(node_mtbf_s=1000.0 * HOUR_S, nodes=nodes)
    for stall_s in stalls:
        best.cost(stall_s)
    here = expected_efficiency(best.setting, best.interval_s)
    for factor in (0.5, 0.8, 1.25, 2.0):
        assert expected_efficiency(best.setting, factor * best.interval_s) <= here + 1e-4


def test_one_odd_stall_does_not_move_it() -> None:
    best = BestInterval(node_mtbf_s=24.0 * HOUR_S, nodes=1)
    for _ in range(8):
        best.cost(0.5)
    before_s = best.interval_s
    best.cost(60.0)
    assert best.interval_s == before_s == pytest.approx(math.sqrt(2 * 0.5 * 24 * HOUR_S), rel=0.01)


def test_it_is_told_when_it_is_known_and_when_it_changed_by_half() -> None:
    best = BestInterval(node_mtbf_s=24.0 * HOUR_S, nodes=8)
    assert best.news() is None
    best.cost(0.5)
    said = best.news()
    assert said is not None
    assert "every 104 s" in said
    assert "8 nodes fails every 3 h" in said
    best.cost(0.6)
    assert best.news() is None
    for _ in range(9):
        best.cost(3.0)
    assert "every 253 s" in str(best.news())


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan, math.inf])
def test_a_time_that_is_none_is_refused(wrong: float) -> None:
    with pytest.raises(ConfigError, match="node_mtbf_s"):
        BestInterval(node_mtbf_s=wrong, nodes=1)
