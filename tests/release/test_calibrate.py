from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from failsoft.errors import ConfigError, GateError
from failsoft.release.calibrate import calibration_error, fit_temperature
from failsoft.release.spread import log_probabilities


def honest(count: int, intents: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Logits whose softmax is the true distribution that the labels are drawn from."""
    chance = np.random.default_rng(seed)
    logits = chance.normal(0.0, 2.0, size=(count, intents))
    shares = np.exp(log_probabilities(logits)).cumsum(axis=1)
    labels = (chance.random((count, 1)) > shares).sum(axis=1)
    return logits, np.minimum(labels, intents - 1)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 1.5, 4.0])
def test_the_temperature_that_spoiled_honest_logits_is_found(temperature: float) -> None:
    logits, labels = honest(20_000, 8, seed=3)
    assert fit_temperature(logits * temperature, labels) == pytest.approx(temperature, rel=0.05)


def test_the_fitted_temperature_makes_confidences_honest() -> None:
    logits, labels = honest(20_000, 8, seed=4)
    spoiled = logits * 3.0
    assert calibration_error(spoiled, labels, 1.0) > 0.1
    assert calibration_error(spoiled, labels, fit_temperature(spoiled, labels)) < 0.02


@given(scale=st.floats(0.2, 5.0), seed=st.integers(0, 50))
def test_scaled_logits_have_a_scaled_temperature(scale: float, seed: int) -> None:
    logits, labels = honest(400, 5, seed=seed)
    plain = fit_temperature(logits, labels)
    assert fit_temperature(logits * scale, labels) == pytest.approx(plain * scale, rel=0.01)


def test_a_model_that_is_always_right_does_not_become_infinitely_sure() -> None:
    labels = np.arange(300) % 3
    logits = np.eye(3)[labels] * 5.0
    temperature = fit_temperature(logits, labels)
    sure = np.exp(log_probabilities(logits, temperature)).max(axis=1)
    assert sure.max() < 1.0 - 1e-3


@pytest.mark.parametrize(
    ("logits", "labels"),
    [
        (np.zeros((0, 3)), np.zeros(0, dtype=int)),
        (np.zeros(3), np.zeros(3, dtype=int)),
        (np.zeros((2, 3)), np.array([0])),
        (np.zeros((2, 3)), np.array([0, 3])),
        (np.zeros((2, 3)), np.array([0, -1])),
    ],
)
def test_what_does_not_fit_together_is_refused(logits: NDArray[np.float64], labels: NDArray[np.int64]) -> None:
    with pytest.raises(ConfigError):
        fit_temperature(logits, labels)


def test_logits_that_are_not_finite_have_no_calibration() -> None:
    with pytest.raises(GateError, match="NaN or Inf"):
        fit_temperature(np.array([[0.0, np.nan]]), np.array([0]))


def test_the_calibration_error_of_a_nan_answer_is_nan() -> None:
    assert np.isnan(calibration_error(np.array([[0.0, np.nan]]), np.array([0]), 1.0))
