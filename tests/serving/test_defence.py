"""What is not a number never passes, and a credible answer always does."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from failsoft.errors import ConfigError
from failsoft.health.window import Outcome
from failsoft.models.scores import ScoredSpan
from failsoft.serving.defence import Judgement, QualityPolicy, credible_spans, judge

POLICY = QualityPolicy()
NOT_NUMBERS = (math.nan, math.inf, -math.inf)


def one(*logits: float, policy: QualityPolicy = POLICY, temperature: float = 1.0) -> Judgement:
    (judgement,) = judge([list(logits)], temperature, policy)
    return judgement


def refused(judgement: Judgement) -> bool:
    return judgement.outcome is Outcome.WEAK and not judgement.usable and bool(judgement.reason)


@pytest.mark.parametrize("bad", NOT_NUMBERS)
def test_scores_that_are_not_finite_are_weak_and_unusable(bad: float) -> None:
    """N1: softmax of all -inf or +inf is NaN, and NaN is not below any limit."""
    assert refused(one(bad, bad, bad))
    assert refused(one(9.0, bad, 0.0))


def test_a_nan_confidence_is_weak() -> None:
    judgement = one(math.nan, 0.0)
    assert math.isnan(judgement.confidence)
    assert refused(judgement)


def test_a_certain_answer_has_entropy_zero_and_not_nan() -> None:
    """N2: 0 * log 0 is NaN when written naively."""
    judgement = one(200.0, 0.0, 0.0)
    assert (judgement.outcome, judgement.usable, judgement.confidence) == (Outcome.GOOD, True, 1.0)
    assert judgement.entropy == pytest.approx(0.0, abs=1e-12)
    assert one(1e308, -1e308).entropy == 0.0


def test_masked_scores_of_minus_1e9_do_not_disturb_the_others() -> None:
    assert one(9.0, 0.0, -1e9).usable
    assert one(-1e9, -1e9, -1e9).confidence == pytest.approx(1 / 3)


def test_scores_in_half_precision_are_judged_like_any_other() -> None:
    (judgement,) = judge(np.array([[9.0, 0.0, 0.0]], dtype=np.float16), 1.0, POLICY)
    assert judgement.usable
    (overflown,) = judge(np.array([[9.0, 0.0, -np.inf]], dtype=np.float16), 1.0, POLICY)
    assert refused(overflown)


@pytest.mark.parametrize(
    "scores", [[1.0, 2.0], [[[1.0]]], [["a"]], [[]], None, [[1.0], [1.0, 2.0]], [[1.0, 2.0, 3.0]], [[1.0, 2.0]] * 3]
)
def test_scores_of_another_shape_are_refused_once_for_each_text(scores: Any) -> None:
    judgements = judge(scores, 1.0, POLICY, rows=2, classes=2)
    assert len(judgements) == 2
    assert all(map(refused, judgements))


@pytest.mark.parametrize(
    "scores",
    [
        np.array([[1.0 + 2.0j, 9.0]]),
        np.array([["2026-01-01", "2026-01-02"]], dtype="datetime64[D]"),
        [["1", "9"]],
        [[b"1", b"9"]],
    ],
)
def test_scores_that_are_no_real_numbers_are_refused_although_they_could_be_made_some(scores: Any) -> None:
    (judgement,) = judge(scores, 1.0, POLICY, rows=1, classes=2)
    assert refused(judgement)


@pytest.mark.parametrize("temperature", [0.0, -1.0, *NOT_NUMBERS])
def test_a_temperature_that_is_none_makes_every_answer_unusable(temperature: float) -> None:
    assert refused(one(9.0, 0.0, temperature=temperature))


def test_no_texts_are_no_judgements() -> None:
    assert judge(np.zeros((0, 5)), 1.0, POLICY, rows=0, classes=5) == []


@pytest.mark.parametrize(
    ("confidence", "outcome", "usable"),
    [(0.66, "good", True), (0.64, "weak", True), (0.51, "weak", True), (0.49, "weak", False)],
)
def test_a_weak_answer_is_given_above_the_cutoff_and_replaced_below(
    confidence: float, outcome: str, usable: bool
) -> None:
    rest = (1.0 - confidence) / 9
    judgement = one(math.log(confidence), *[math.log(rest)] * 9)
    assert judgement.confidence == pytest.approx(confidence)
    assert (judgement.outcome.value, judgement.usable) == (outcome, usable)


def test_entropy_and_margin_have_limits_of_their_own() -> None:
    assert "entropy" in one(3.0, 0.0, 0.0, policy=QualityPolicy(max_entropy=0.1)).reason
    close = QualityPolicy(low_confidence=0.4, cutoff_confidence=0.4, max_entropy=1.0)
    assert "margin" in one(0.1, 0.0, policy=close).reason


@given(st.integers(2, 200), st.floats(0.65, 1.0, exclude_max=True), st.randoms(use_true_random=False))
def test_with_the_default_policy_confidence_alone_decides(classes: int, confidence: float, chance: Any) -> None:
    """So that a release's measured weak share, which is taken from confidences, means the same here."""
    shares = np.array([chance.random() + 1e-9 for _ in range(classes - 1)])
    rest = shares / shares.sum() * (1.0 - confidence)
    with np.errstate(divide="ignore"):
        logits = np.maximum(np.log([confidence * (1 + 1e-12), *rest]), -700.0)
    assert one(*logits).outcome is Outcome.GOOD


@given(
    arrays.arrays(
        np.float64,
        st.tuples(st.integers(0, 4), st.integers(1, 6)),
        elements=st.floats(allow_nan=True, allow_infinity=True),
    ),
    st.floats(allow_nan=True, allow_infinity=True),
)
def test_judging_never_raises_and_only_numbers_pass(logits_BC: Any, temperature: float) -> None:
    judgements = judge(logits_BC, temperature, POLICY)
    assert len(judgements) == len(logits_BC)
    for row, judgement in zip(logits_BC, judgements, strict=True):
        assert np.isfinite(row).all() or refused(judgement)
        assert not judgement.usable or judgement.confidence >= POLICY.cutoff_confidence
        assert judgement.outcome is Outcome.WEAK or not judgement.reason


@given(arrays.arrays(np.float32, (3, 7), elements=st.floats(-30, 30, width=32)), st.floats(0.1, 10.0))
def test_the_numbers_are_those_of_the_textbook(logits_BC: Any, temperature: float) -> None:
    scaled = logits_BC.astype(np.float64) / temperature
    probabilities_BC = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    probabilities_BC /= probabilities_BC.sum(axis=1, keepdims=True)
    sorted_BC = np.sort(probabilities_BC, axis=1)
    safe = np.where(probabilities_BC > 0, probabilities_BC, 1.0)
    entropy_B = -(probabilities_BC * np.log(safe)).sum(axis=1) / math.log(7)
    for row, judgement in enumerate(judge(logits_BC, temperature, POLICY)):
        assert judgement.intent_index == int(logits_BC[row].argmax())
        assert judgement.confidence == pytest.approx(sorted_BC[row, -1])
        assert judgement.margin == pytest.approx(sorted_BC[row, -1] - sorted_BC[row, -2], abs=1e-9)
        assert judgement.entropy == pytest.approx(entropy_B[row], abs=1e-9)


def test_spans_without_a_credible_confidence_are_not_given() -> None:
    confidences = [0.9, 0.4, math.nan, math.inf]
    spans = [ScoredSpan(0, 4, "genre", confidence) for confidence in confidences]
    assert credible_spans(spans, POLICY) == [True, False, False, False]


@pytest.mark.parametrize(
    ("entropy", "margin", "given"),
    [(0.1, 0.8, True), (None, None, True), (0.96, 0.8, False), (0.1, 0.04, False), (math.nan, 0.8, False)],
)
def test_a_span_that_is_a_toss_of_a_coin_or_not_a_number_is_not_given(
    entropy: float | None, margin: float | None, *, given: bool
) -> None:
    assert credible_spans([ScoredSpan(0, 4, "genre", 0.9, entropy, margin)], POLICY) == [given]
    assert credible_spans([ScoredSpan(0, 4, "genre", 0.9, 0.1, math.nan)], POLICY) == [False]


@pytest.mark.parametrize(
    "field",
    ["low_confidence", "cutoff_confidence", "max_entropy", "min_margin", "min_span_confidence", "min_span_margin"],
)
@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan])
def test_a_limit_outside_0_to_1_is_refused_by_name(field: str, value: float) -> None:
    limits: dict[str, float] = {field: value}
    with pytest.raises(ConfigError, match=f"{field} is"):
        QualityPolicy(**limits)


def test_a_cutoff_above_the_low_limit_is_refused() -> None:
    with pytest.raises(ConfigError, match="above low_confidence"):
        QualityPolicy(low_confidence=0.4, cutoff_confidence=0.5)
