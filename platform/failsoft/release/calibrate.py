"""Honest confidences: one temperature, fitted on validation data.

Guo, Pleiss, Sun, Weinberger, "On Calibration of Modern Neural Networks", 2017 (arXiv 1706.04599). Dividing logits by a
temperature changes no answer, only how sure the model says it is.
"""
# B texts, C intents

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from failsoft.errors import ConfigError, GateError
from failsoft.release.spread import Floats, log_probabilities

LOWEST, HIGHEST = 0.05, 20.0
"""The search stays between these temperatures; beyond them the logits, not the calibration, are wrong."""
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
_TOLERANCE = 1e-4  # of log temperature: a hundredth of a percent


def fit_temperature(intent_logits_BC: NDArray[np.floating], labels_B: NDArray[np.integer]) -> float:
    """The temperature with the least negative log likelihood on held-out data.

    The likelihood is convex in 1/temperature, so a golden-section search over its logarithm finds the one minimum.
    Targets are smoothed as Platt did (1999, "Probabilistic outputs for support vector machines"): of ``B`` texts the
    label gets (B + 1) / (B + 2). Without that, a model that has every validation text right would be made infinitely
    sure.

    Raises:
        ConfigError: no texts, shapes that don't fit, or labels outside the intents.
        GateError: logits that are not finite.
    """
    logits_BC, labels = np.asarray(intent_logits_BC, dtype=np.float64), np.asarray(labels_B)
    _check(logits_BC, labels)
    low, high = math.log(LOWEST), math.log(HIGHEST)
    while high - low > _TOLERANCE:
        left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        if _loss(logits_BC, labels, left) < _loss(logits_BC, labels, right):
            high = right
        else:
            low = left
    return math.exp((low + high) / 2.0)


def calibration_error(
    intent_logits_BC: NDArray[np.floating], labels_B: NDArray[np.integer], temperature: float
) -> float:
    """Expected calibration error over 15 equally wide bins: mean gap between confidence and accuracy, 0..1.

    NaN when a row of logits is not finite.
    """
    probabilities_BC = np.exp(log_probabilities(intent_logits_BC, temperature))
    confidences_B, answers_B = probabilities_BC.max(axis=1), probabilities_BC.argmax(axis=1)
    if not np.isfinite(confidences_B).all():
        return math.nan
    bins_B = np.minimum((confidences_B * 15).astype(int), 14)
    gaps_B = confidences_B - (answers_B == np.asarray(labels_B))
    return float(sum(abs(gaps_B[bins_B == number].sum()) for number in range(15)) / len(gaps_B))


def _loss(logits_BC: Floats, labels_B: NDArray[np.integer], log_temperature: float) -> float:
    count, intents = logits_BC.shape
    log_p_BC = log_probabilities(logits_BC, math.exp(log_temperature))
    of_label_B = log_p_BC[np.arange(count), labels_B]
    of_others_B = (log_p_BC.sum(axis=1) - of_label_B) / (intents - 1)
    smoothing = 1.0 / (count + 2.0)
    return float(-((1.0 - smoothing) * of_label_B + smoothing * of_others_B).mean())


def _check(logits_BC: Floats, labels_B: NDArray[np.integer]) -> None:
    if logits_BC.ndim != 2 or logits_BC.shape[1] < 2 or not len(logits_BC):
        raise ConfigError(
            f"logits of shape {logits_BC.shape} can't be calibrated; give (texts, intents), at least 1 × 2"
        )
    if labels_B.shape != logits_BC.shape[:1]:
        raise ConfigError(f"{labels_B.shape} labels for {len(logits_BC)} rows of logits; give one for each")
    if labels_B.min() < 0 or labels_B.max() >= logits_BC.shape[1]:
        raise ConfigError(
            f"labels reach from {labels_B.min()} to {labels_B.max()}, intents are 0 to {logits_BC.shape[1] - 1}"
        )
    if not np.isfinite(logits_BC).all():
        raise GateError("logits hold NaN or Inf; a model that is not finite has no calibration, train it again")
