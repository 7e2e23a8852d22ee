from __future__ import annotations

import math

import numpy as np
import pytest

from failsoft.errors import ConfigError
from failsoft.release.divergence import divergence
from failsoft.release.spread import log_probabilities


def test_the_divergence_of_a_known_pair_is_right() -> None:
    full = np.log([[0.5, 0.5], [0.9, 0.1]])
    narrow = np.log([[0.5, 0.5], [0.6, 0.4]])
    expected = 0.9 * math.log(0.9 / 0.6) + 0.1 * math.log(0.1 / 0.4)
    found = divergence(full, narrow)
    assert (found.mean, found.maximum, found.count) == pytest.approx((expected / 2, expected, 2))


def test_no_inputs_have_no_divergence() -> None:
    assert math.isnan(divergence(np.zeros((0, 3)), np.zeros((0, 3))).maximum)


def test_other_classes_are_not_compared() -> None:
    with pytest.raises(ConfigError, match="can't be compared"):
        divergence(np.zeros((2, 3)), np.zeros((2, 4)))


def test_an_answer_that_is_not_finite_has_no_divergence() -> None:
    assert math.isnan(
        divergence(log_probabilities(np.zeros((1, 3))), log_probabilities(np.full((1, 3), np.inf))).maximum
    )


def test_the_same_answers_are_not_apart() -> None:
    same = log_probabilities(np.array([[400.0, 0.0, -400.0], [1.0, 2.0, 3.0]]))
    assert divergence(same, same).maximum == 0.0
