"""What is said of viewers' cost: a dear one is not waved through, and where noise is larger nothing is claimed."""

from __future__ import annotations

import random

import pytest

from tests.benchmarks.viewer_cost import Extra, Sum

CHANCE = random.Random(5)


def cores(mean: float, noise: float, rounds: int = 18) -> list[float]:
    return [mean + CHANCE.gauss(0.0, noise) for _ in range(rounds)]


def test_what_is_clearly_below_is_below_and_what_is_clearly_above_is_more() -> None:
    without = cores(0.2, 0.001)
    assert Extra.of([one + 0.004 for one in without], without).verdict(0.01) == "below 1%"
    assert Extra.of([one + 0.02 for one in without], without).verdict(0.01) == "more than 1%"


def test_where_noise_is_larger_than_the_question_nothing_is_claimed() -> None:
    found = Extra.of(cores(0.204, 0.05), cores(0.2, 0.05))
    assert found.low < 0.01 < found.high
    assert "can't tell" in found.verdict(0.01)


def test_few_turns_claim_no_more_than_all_of_them_show() -> None:
    found = Extra.of([0.203, 0.204, 0.215], [0.2, 0.2, 0.2])
    assert found.low == pytest.approx(0.003)
    assert found.high == pytest.approx(0.015)
    assert "can't tell" in found.verdict(0.01)


def test_not_a_number_is_no_good_news() -> None:
    assert "below" not in Extra(cores=float("nan"), low=float("nan"), high=float("nan")).verdict(0.01)


def test_a_machine_that_slows_down_half_way_slows_both_of_a_pair() -> None:
    drift = [1.0 if number < 9 else 2.0 for number in range(18)]
    found = Extra.of([0.204 * slow for slow in drift], [0.2 * slow for slow in drift])
    assert found.verdict(0.01) == "below 1%"


def test_the_sum_is_of_one_look_and_a_copy_for_each() -> None:
    parts = Sum.of({0: [0.010] * 3, 3: [0.0136] * 3, 9: [0.0148] * 3})
    assert parts.look_s == pytest.approx(0.003)
    assert parts.copy_s == pytest.approx(0.0002)
    assert parts.cores(3) == pytest.approx(0.0036)
    assert "0.36% of a core" in parts.in_words(3)


def test_what_is_taken_of_a_core_is_taken_of_the_throughput() -> None:
    ratio = Extra(cores=0.2, low=0.1, high=0.5).of_throughput()
    assert ratio.value == pytest.approx(1.25)
    assert ratio.high == pytest.approx(2.0)
