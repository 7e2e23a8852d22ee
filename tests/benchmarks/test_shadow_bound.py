"""The bound on what copies cost: it grows with a copy's cost and the share, and a dear copy is not waved through."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from failsoft.serving.plan.plan import Colour, Stage
from tests.benchmarks.shadow_bound import CopyCost, bound, in_words
from tests.benchmarks.shadow_by_wall import ALL, NONE, ONE_PERCENT, SHARES, pooled
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


def test_rounds_are_drawn_whole_so_that_a_spell_of_noise_widens_what_is_said() -> None:
    calm = {kind: [list(LIVE_S[:100]) for _ in range(20)] for kind in SHARES}
    assert pooled(calm, ONE_PERCENT) == (1.0, 1.0, 1.0)
    calm[ALL] = [[2 * each_s for each_s in one] for one in calm[NONE]]
    value, low, high = pooled(calm, ALL)
    assert value == low == high == pytest.approx(2.0)
    for number in range(3):
        calm[ONE_PERCENT][number] = [10 * each_s for each_s in calm[ONE_PERCENT][number]]
    value, low, high = pooled(calm, ONE_PERCENT)
    assert low <= value <= high
    assert high > 5.0
