"""The net behind the model: are these scores an answer? What is not a number never passes.

``NaN < 0.65``, ``margin < x`` and ``entropy > y`` are all False, so a NaN answer looks healthy to comparisons that ask
for badness. Every comparison here asks for goodness instead.
"""

# B texts, C intents

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from failsoft.errors import ConfigError
from failsoft.health.window import Outcome

REAL = "biufO"
"""Kinds of arrays that are real numbers: also integers too large for their own type, which come as objects."""


@dataclass(frozen=True, kw_only=True)
class QualityPolicy:
    """When an answer is weak, and when it is not given at all.

    With the defaults the top confidence alone decides: from 0.65 on neither entropy nor margin can reach its limit. So
    a release's measured share of weak answers means the same here as where it was measured.
    """

    low_confidence: float = 0.65
    """Below it an answer counts as weak; the model is watched by it."""
    cutoff_confidence: float = 0.50
    """Below it this caller gets the fallback instead."""
    max_entropy: float = 0.95
    """Above it an answer is weak; entropy of the intents as a fraction of the largest possible."""
    min_margin: float = 0.10
    """Below it an answer is weak; distance between the two most probable intents."""
    min_span_confidence: float = 0.50
    """Spans below it are not given."""
    min_span_margin: float = 0.05
    """Spans whose two best tags are closer are not given: which slot it is would be a toss of a coin."""

    def __post_init__(self) -> None:
        """Refuse limits that everything or nothing can pass."""
        for name in (
            "low_confidence",
            "cutoff_confidence",
            "max_entropy",
            "min_margin",
            "min_span_confidence",
            "min_span_margin",
        ):
            value = getattr(self, name)
            if not 0.0 <= value <= 1.0:
                raise ConfigError(f"{name} is {value}; it is a fraction from 0 to 1")
        if not self.cutoff_confidence <= self.low_confidence:
            raise ConfigError(
                f"cutoff_confidence {self.cutoff_confidence} is above low_confidence {self.low_confidence}: answers "
                "that count as good would be withheld; set it at or below"
            )


class Judgement(NamedTuple):
    """What the scores of one text are worth. Numbers are NaN when they could not be had."""

    intent_index: int
    """The most probable intent; 0 when there is none."""
    confidence: float
    entropy: float
    margin: float
    outcome: Outcome
    """GOOD or WEAK: what it says about the model."""
    usable: bool
    """Whether the caller may have it."""
    reason: str
    """What is wrong with it; empty when nothing is."""


def judge(
    intent_logits_BC: npt.ArrayLike,
    temperature: float,
    policy: QualityPolicy,
    *,
    rows: int | None = None,
    classes: int | None = None,
) -> list[Judgement]:
    """Judge a batch. Never raises for any content of the scores.

    Args:
        intent_logits_BC: raw scores, any real dtype.
        temperature: the release's calibration; the logits are divided by it.
        policy: the limits.
        rows: how many texts were asked about; with another shape all of them are unusable.
        classes: how many intents the release has; likewise.

    Returns:
        One judgement for each text: ``rows`` of them if given, else as many as the scores have.
    """
    logits_BC = _as_array(intent_logits_BC)
    why = _misshapen(logits_BC, rows, classes, temperature)
    if why or logits_BC is None:
        return [_no_answer(why)] * _row_count(logits_BC, rows)
    return [_judge_row(logits_C, temperature, policy) for logits_C in logits_BC.tolist()]


class SpanDoubt(Protocol):
    """How sure a model is of one span."""

    @property
    def confidence(self) -> float | None:
        """Of the least certain word."""
        ...

    @property
    def entropy(self) -> float | None:
        """Of its tags, as a fraction of the largest possible; None: not measured."""
        ...

    @property
    def margin(self) -> float | None:
        """Between its two best tags; None: not measured."""
        ...


def credible_spans(spans: Iterable[SpanDoubt], policy: QualityPolicy) -> list[bool]:
    """For each span whether the caller may have it; one without a confidence, or with NaN anywhere, may not."""
    return [_is_credible(span, policy) for span in spans]


def _is_credible(span: SpanDoubt, policy: QualityPolicy) -> bool:
    confidence, entropy, margin = span.confidence, span.entropy, span.margin
    return (
        confidence is not None
        and policy.min_span_confidence <= confidence <= 1.0
        and (entropy is None or entropy <= policy.max_entropy)
        and (margin is None or margin >= policy.min_span_margin)
    )


def _as_array(scores: npt.ArrayLike) -> npt.NDArray[np.float64] | None:
    """As numbers; None when they are anything else. Text of digits and dates would become numbers by ``float64``."""
    try:
        given = np.asarray(scores)
        return given.astype(np.float64) if given.dtype.kind in REAL else None
    except (TypeError, ValueError, OverflowError):  # ragged, or objects that are no numbers
        return None


def _misshapen(
    scores: npt.NDArray[np.float64] | None, rows: int | None, classes: int | None, temperature: float
) -> str:
    if scores is None or scores.ndim != 2 or scores.shape[1] == 0:
        return f"scores have shape {None if scores is None else scores.shape}, not (texts, intents)"
    if (rows is not None and rows != scores.shape[0]) or (classes is not None and classes != scores.shape[1]):
        return f"scores have shape {scores.shape}, asked was for ({rows}, {classes})"
    if not 0.0 < temperature < math.inf:
        return f"the release's temperature is {temperature}"
    return ""


def _row_count(scores: npt.NDArray[np.float64] | None, rows: int | None) -> int:
    if rows is not None:
        return rows
    return scores.shape[0] if scores is not None and scores.ndim else 1


def _judge_row(logits_C: list[float], temperature: float, policy: QualityPolicy) -> Judgement:
    """Plain Python: a row of 20 takes 7 µs, numpy 30; only from some tens of rows on numpy would be ahead."""
    if not all(map(math.isfinite, logits_C)):
        return _no_answer("scores that are not finite")
    top = max(logits_C)
    shifted_C = [(logit - top) / temperature for logit in logits_C]
    weights_C = list(map(math.exp, shifted_C))
    total = sum(weights_C)
    mean_shift = sum(weight * shift for weight, shift in zip(weights_C, shifted_C, strict=True) if weight) / total
    entropy = (math.log(total) - mean_shift) / math.log(max(len(logits_C), 2))
    best = logits_C.index(top)
    weights_C[best] = 0.0
    return _judgement(best, 1.0 / total, entropy, (1.0 - max(weights_C)) / total, policy)


def _judgement(index: int, confidence: float, entropy: float, margin: float, policy: QualityPolicy) -> Judgement:
    reason = _reason(confidence, entropy, margin, policy)
    return Judgement(
        intent_index=index,
        confidence=confidence,
        entropy=entropy,
        margin=margin,
        outcome=Outcome.WEAK if reason else Outcome.GOOD,
        usable=confidence >= policy.cutoff_confidence,
        reason=reason,
    )


def _reason(confidence: float, entropy: float, margin: float, policy: QualityPolicy) -> str:
    if not confidence >= policy.low_confidence:
        return f"confidence {confidence:.2f} is below {policy.low_confidence:.2f}"
    if not entropy <= policy.max_entropy:
        return f"entropy {entropy:.2f} is above {policy.max_entropy:.2f}"
    if not margin >= policy.min_margin:
        return f"margin {margin:.2f} is below {policy.min_margin:.2f}"
    return ""


def _no_answer(why: str) -> Judgement:
    nan = math.nan
    return Judgement(
        intent_index=0, confidence=nan, entropy=nan, margin=nan, outcome=Outcome.WEAK, usable=False, reason=why
    )
