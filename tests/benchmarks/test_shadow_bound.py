"""The bound on what copies cost: it grows with a copy's cost and the share, and a dear copy is not waved through."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from failsoft.serving.plan.plan import Colour, Stage
from tests.benchmarks.shadow_bound import CopyCost, bound, in_words
from tests.serving.fakes import plan

CHANCE = random.Random(1)
LIVE_S = [0.004 + CHANCE.expovariate(2000.0) for _ in range(4000)]
CHEAP = CopyCost(mean_s=0.0002, high_s=0.0003, choosing_s=0.000002)


def ratio(cost: CopyCost, share: float = 0.01) -> float:
    return bound(LIVE_S, cost, share=share, rate_hz=400.0)


def test_a_cheap_copy_of_one_in_a_hundred_is_shown_to_cost_next_to_nothing() -> None:
    assert 1.0 <= ratio(CHEAP) <= 1.02
    assert "at most 1.02" in in_words(ratio(CHEAP), CHEAP, limit=1.02)


@pytest.mark.parametrize(
    ("cost", "share"), [(CHEAP, 1.0), (replace(CHEAP, high_s=0.05), 0.01), (replace(CHEAP, choosing_s=0.001), 0.01)]
)
def test_what_costs_more_is_not_shown_to_cost_little(cost: CopyCost, share: float) -> None:
    found = ratio(cost, share)
    assert found > 1.02
    assert "not shown" in in_words(found, cost, limit=1.02)


def test_the_cost_of_a_copy_is_told_with_how_far_it_is_known() -> None:
    copying = replace(plan(Stage.SHADOW, share=0.0, stand_in=Colour.GREEN), mirror_share=0.01)
    sure = CopyCost.of([0.0002] * 20, copying)
    unsure = CopyCost.of([0.0001, 0.0003] * 10, copying)
    assert sure.mean_s == pytest.approx(0.0002) == sure.high_s
    assert unsure.high_s > 0.0002
    assert 0.0 < sure.choosing_s < 0.01
