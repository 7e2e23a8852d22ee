"""How a healthy release behaves: what serving arms its monitor with and what later releases are compared with."""
# B texts, C intents

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from failsoft.artifacts.bundle import Baseline
from failsoft.errors import GateError
from failsoft.health.clock import Clock
from failsoft.models.scores import ScoreBatch
from failsoft.release.calibrate import calibration_error
from failsoft.release.evidence import answers_of
from failsoft.release.spread import log_probabilities

LOW_CONFIDENCE = 0.65
"""An answer below it is weak; serving's default limit is the same."""
_WARM_UP = 3


@dataclass(frozen=True, kw_only=True)
class Latency:
    """The model's own time for one text, alone, in this process."""

    p50_ms: float
    p95_ms: float


def measure(
    scores: ScoreBatch,
    *,
    temperature: float,
    intents: Sequence[str] | None = None,
    latency: Latency | None = None,
    known_types_fraction: float | None = None,
    low_confidence: float = LOW_CONFIDENCE,
) -> Baseline:
    """The baseline of a model's answers to its validation texts.

    Args:
        scores: raw answers.
        temperature: the release's calibration.
        intents: the right answers, one for each text; without them accuracy and calibration error stay unknown.
        latency: of one text, see :func:`latency_of`; None when not measured.
        known_types_fraction: share of the texts' different words that training held; None when not measured.
        low_confidence: answers whose calibrated confidence is not at least this are weak.

    Raises:
        GateError: no answers, or logits that are not finite; such a model has no healthy baseline.
    """
    logits_BC = scores.intent_logits_BC
    _refuse_ill(scores)
    confidences_B = np.exp(log_probabilities(logits_BC, temperature)).max(axis=1)
    spread = answers_of(logits_BC, temperature).spread()
    words = int(scores.counts_B.sum())
    unknown = float((scores.oov_fraction_B.astype(np.float64) * scores.counts_B).sum())
    mix = Counter(scores.best_intents())
    right = _Right.of(scores, intents, temperature)
    return Baseline(
        samples=len(scores),
        weak_fraction=float((~(confidences_B >= low_confidence)).mean()),
        entropy_mean=spread.entropy_mean,
        entropy_std=spread.entropy_std,
        logit_std=spread.logit_std,
        oov_fraction=unknown / words if words else 1.0,
        label_mix={intent: count / len(scores) for intent, count in sorted(mix.items())},
        latency_p95_ms=latency.p95_ms if latency else None,
        latency_p50_ms=latency.p50_ms if latency else None,
        oov_mean=float(scores.oov_fraction_B.mean(dtype=np.float64)),
        oov_std=float(scores.oov_fraction_B.std(dtype=np.float64)),
        words_mean=float(scores.counts_B.mean()),
        words_std=float(scores.counts_B.std()),
        confidence_mean=float(confidences_B.mean()),
        known_types_fraction=known_types_fraction,
        accuracy=right.accuracy,
        calibration_error=right.calibration_error,
    )


def _refuse_ill(scores: ScoreBatch) -> None:
    finite_BC = np.isfinite(scores.intent_logits_BC)
    if not len(scores) or not finite_BC.all():
        raise GateError(
            f"{len(scores)} answers with {int((~finite_BC).sum())} logits that are NaN or Inf make no healthy "
            "baseline; train again from a healthy checkpoint"
        )


@dataclass(frozen=True, kw_only=True)
class _Right:
    accuracy: float | None = None
    calibration_error: float | None = None

    @classmethod
    def of(cls, scores: ScoreBatch, intents: Sequence[str] | None, temperature: float) -> _Right:
        if intents is None:
            return cls()
        labels_B = np.array([scores.intents.index(intent) for intent in intents])
        return cls(
            accuracy=float((scores.intent_logits_BC.argmax(axis=1) == labels_B).mean()),
            calibration_error=calibration_error(scores.intent_logits_BC, labels_B, temperature),
        )


def latency_of(predict: Callable[[Sequence[str]], object], texts: Sequence[str], clock: Clock) -> Latency | None:
    """Median and 95th percentile of the time for one text alone, after a warm-up; None without texts."""
    if not texts:
        return None
    for text in texts[:_WARM_UP]:
        predict([text])
    p50_ms, p95_ms = np.quantile([_timed_ms(predict, text, clock) for text in texts], [0.5, 0.95])
    return Latency(p50_ms=float(p50_ms), p95_ms=float(p95_ms))


def _timed_ms(predict: Callable[[Sequence[str]], object], text: str, clock: Clock) -> float:
    started_s = clock.monotonic_s()
    predict([text])
    return (clock.monotonic_s() - started_s) * 1000.0
