"""Not worse than what serves, by a bound that holds however often one asks; honest; not too large."""

from __future__ import annotations

import math

import numpy as np
import pytest

from failsoft.health.sequential import samples_needed
from failsoft.release.policy import GatePolicy
from failsoft.release.worth_gates import judge_accuracy, judge_calibration, judge_size

POLICY = GatePolicy()
NEEDED = samples_needed(0.0, margin=POLICY.accuracy_margin, alpha=POLICY.accuracy_alpha / 2)


def judged(texts: int, lost: int, won: int, policy: GatePolicy = POLICY) -> tuple[bool, str]:
    right_B, served_B = np.ones(texts, dtype=bool), np.ones(texts, dtype=bool)
    right_B[:lost] = False
    served_B[lost : lost + won] = False
    found = judge_accuracy(right_B, served_B, policy, against="in release r")
    return found.passed, found.why


@pytest.mark.parametrize(
    ("texts", "lost", "won", "passes"),
    [
        (800, 0, 0, True),
        (800, 6, 6, True),
        (800, 0, 40, True),
        (800, 60, 0, False),
        (800, 40, 5, False),
        (120, 0, 0, False),
        (0, 0, 0, False),
    ],
)
def test_it_passes_only_when_the_bound_lies_below_the_margin(texts: int, lost: int, won: int, passes: bool) -> None:
    assert judged(texts, lost, won)[0] is passes


def test_too_few_texts_are_undecided_and_the_needed_number_is_said() -> None:
    passed, why = judged(120, 0, 0)
    assert not passed
    assert f"undecided, which fails: some {NEEDED} texts would decide" in why


def test_with_the_number_that_was_said_it_is_decided() -> None:
    assert judged(NEEDED, 0, 0)[0]
    assert not judged(int(0.9 * NEEDED), 0, 0)[0]


def test_a_wider_margin_and_a_larger_alpha_need_fewer_texts() -> None:
    assert judged(120, 0, 0, GatePolicy(accuracy_margin=0.1))[0]
    assert judged(int(0.9 * NEEDED), 0, 0, GatePolicy(accuracy_alpha=0.2))[0]


def test_a_worse_release_passes_no_more_often_than_alpha() -> None:
    """It loses 5 % of the texts, margin 4 %: the promise is that at most 5 % of such releases ever pass."""
    chance, passed = np.random.default_rng(5), 0
    for _ in range(400):
        right_B = chance.random(800) >= 0.05
        passed += judge_accuracy(right_B, np.ones(800, dtype=bool), POLICY, against="x").passed
    assert passed / 400 <= 0.05


def test_an_equal_release_passes_nearly_always() -> None:
    """Both wrong on 1 % of the texts, on different ones."""
    chance, passed = np.random.default_rng(6), 0
    for _ in range(200):
        right_B, served_B = chance.random(1000) >= 0.01, chance.random(1000) >= 0.01
        passed += judge_accuracy(right_B, served_B, POLICY, against="x").passed
    assert passed / 200 >= 0.95


@pytest.mark.parametrize(("error", "texts", "passes"), [(0.01, 500, True), (0.06, 500, False), (0.01, 50, False)])
def test_confidences_that_do_not_mean_what_they_say_fail(error: float, texts: int, passes: bool) -> None:
    assert judge_calibration(error, texts, POLICY).passed is passes
    assert not judge_calibration(math.nan, texts, POLICY).passed


def test_a_release_beyond_its_budget_or_without_files_fails() -> None:
    assert judge_size([10**9], POLICY).passed
    assert not judge_size([3 * 10**9], POLICY).passed
    assert not judge_size([], POLICY).passed
