"""Numbers with an uncertainty."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from failsoft.errors import ConfigError
from failsoft.health.window import Outcome
from failsoft.serving.quality.numbers import Regression
from failsoft.serving.seam import Judged

RULE = Regression(tolerance=2.0, max_std=4.0)
RANGE = {"mean_low_0": 0.0, "mean_high_0": 100.0}


def judged(mean: Any, std: Any, *, rule: Regression = RULE, measures: dict[str, float] | None = None) -> list[Judged]:
    return rule.judge({"mean": np.array(mean), "std": np.array(std)}, rows=len(mean), measures=measures or {})


@pytest.mark.parametrize("sigmas", [0.5, 1.0, 2.0])
def test_the_confidence_is_the_chance_that_the_truth_lies_within_the_tolerance(sigmas: float) -> None:
    (answer,) = judged([10.0], [2.0 / sigmas])
    errors = np.random.default_rng(0).normal(0.0, 2.0 / sigmas, 200_000)
    assert answer.confidence == pytest.approx(float((np.abs(errors) <= 2.0).mean()), abs=0.005)


def test_a_deviation_of_zero_is_certain_and_one_below_zero_is_none() -> None:
    certain, none = judged([1.0, 1.0], [0.0, -0.1])
    assert (certain.confidence, certain.outcome) == (1.0, Outcome.GOOD)
    assert (none.usable, none.reason) == (False, "mean or std is not finite")


def test_an_unsure_number_is_weak_but_given_and_a_very_unsure_one_is_not_given() -> None:
    unsure, very = judged([1.0, 1.0], [2.5, 3.5])
    assert (unsure.outcome, unsure.usable) == (Outcome.WEAK, True)
    assert (very.outcome, very.usable) == (Outcome.WEAK, False)


def test_a_deviation_above_the_limit_is_given_to_nobody() -> None:
    rule = Regression(tolerance=100.0, max_std=4.0)
    (answer,) = judged([1.0], [4.5], rule=rule)
    assert (answer.usable, answer.reason) == (False, "std is above 4.0")


@pytest.mark.parametrize(
    ("mean", "inside"), [(-10.0, True), (-10.1, False), (110.0, True), (110.1, False), (50.0, True)]
)
def test_a_mean_outside_the_healthy_range_and_its_slack_is_given_to_nobody(mean: float, inside: bool) -> None:
    (answer,) = judged([mean], [0.1], measures=RANGE)
    assert answer.usable is inside
    assert ("outside the range" in answer.reason) is not inside


def test_a_range_that_is_not_a_number_lets_nothing_pass() -> None:
    (answer,) = judged([50.0], [0.1], measures={"mean_low_0": math.nan, "mean_high_0": 100.0})
    assert not answer.usable


def test_the_range_is_measured_on_healthy_answers_for_each_number() -> None:
    scores = {"mean": np.array([[1.0, 20.0], [3.0, 10.0]]), "std": np.ones((2, 2))}
    assert RULE.measure(scores, rows=2) == {
        "mean_low_0": 1.0,
        "mean_low_1": 10.0,
        "mean_high_0": 3.0,
        "mean_high_1": 20.0,
    }


def test_a_model_that_is_ill_at_publishing_is_refused() -> None:
    with pytest.raises(ConfigError, match="not finite"):
        RULE.measure({"mean": np.array([1.0, math.nan]), "std": np.ones(2)}, rows=2)


def test_of_several_numbers_the_least_sure_one_speaks_for_all() -> None:
    both, sure = judged([[1.0, 2.0]], [[0.1, 2.5]])[0], judged([[1.0, 2.0]], [[0.1, 0.1]])[0]
    assert (both.outcome, sure.outcome, sure.output) == (Outcome.WEAK, Outcome.GOOD, [1.0, 2.0])


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        (1.0, 3.0, True),
        (1.0, 3.1, False),
        ([1.0, 2.0], [2.0, 2.0], True),
        (1.0, "unknown", False),
        (1.0, None, False),
        (1.0, [1.0], False),
        (math.nan, 1.0, False),
    ],
)
def test_numbers_agree_within_the_tolerance(one: Any, other: Any, alike: bool) -> None:
    assert RULE.agrees(one, other) is alike


@pytest.mark.parametrize(
    "wrong", [{"tolerance": 0.0}, {"tolerance": math.nan}, {"max_std": -1.0}, {"beyond_fraction": -0.1}]
)
def test_limits_that_everything_or_nothing_passes_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Regression(**({"tolerance": 1.0} | wrong))
