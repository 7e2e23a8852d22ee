from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from failsoft.errors import GateError
from failsoft.health.clock import ManualClock
from failsoft.models.scores import ScoreBatch
from failsoft.release.baseline import Latency, latency_of, measure


def scores(logits: NDArray[np.floating], *, oov: Sequence[float], counts: Sequence[int]) -> ScoreBatch:
    return ScoreBatch(
        intents=("a", "b", "c")[: logits.shape[1]],
        intent_logits_BC=logits.astype(np.float32),
        spans=[[] for _ in logits],
        counts_B=np.array(counts, dtype=np.int32),
        oov_fraction_B=np.array(oov, dtype=np.float32),
        left_out_B=np.zeros(len(logits), dtype=np.int32),
    )


LOGITS = np.array([[9.0, 0.0, 0.0], [9.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 9.0, 0.0]])


def test_an_answer_below_the_limit_is_weak_and_the_others_are_not() -> None:
    found = measure(scores(LOGITS, oov=[0, 0, 0, 0], counts=[1, 1, 1, 1]), temperature=1.0)
    assert (found.samples, found.weak_fraction) == (4, 0.25)
    assert found.label_mix == {"a": 0.75, "b": 0.25}


def test_confidence_is_calibrated_before_it_is_called_weak() -> None:
    hot = measure(scores(LOGITS, oov=[0, 0, 0, 0], counts=[1, 1, 1, 1]), temperature=20.0)
    assert hot.weak_fraction == 1.0


def test_unknown_words_are_counted_by_word_and_not_by_text() -> None:
    found = measure(scores(LOGITS, oov=[1.0, 0, 0, 0], counts=[1, 9, 5, 5]), temperature=1.0)
    assert found.oov_fraction == pytest.approx(1 / 20)


def test_texts_without_a_word_are_all_unknown() -> None:
    assert measure(scores(LOGITS, oov=[1, 1, 1, 1], counts=[0, 0, 0, 0]), temperature=1.0).oov_fraction == 1.0


def test_a_model_that_is_not_finite_has_no_healthy_baseline() -> None:
    broken = LOGITS.copy()
    broken[2, 1] = np.nan
    with pytest.raises(GateError, match="1 logits"):
        measure(scores(broken, oov=[0, 0, 0, 0], counts=[1, 1, 1, 1]), temperature=1.0)


def test_no_answers_are_no_baseline() -> None:
    with pytest.raises(GateError, match="0 answers"):
        measure(scores(LOGITS[:0], oov=[], counts=[]), temperature=1.0)


def test_what_serving_sees_of_single_answers_has_its_healthy_counterpart() -> None:
    found = measure(
        scores(LOGITS, oov=[1.0, 0, 0, 0], counts=[1, 9, 5, 5]),
        temperature=1.0,
        intents=["a", "a", "a", "c"],
        latency=Latency(p50_ms=1.0, p95_ms=2.0),
    )
    assert (found.oov_mean, found.words_mean, found.accuracy) == (0.25, 5.0, 0.75)
    assert [found.oov_std, found.words_std] == pytest.approx([0.433, 8**0.5], abs=1e-3)
    assert (found.latency_p50_ms, found.latency_p95_ms) == (1.0, 2.0)
    assert found.confidence_mean == pytest.approx((3 * 0.9998 + 1 / 3) / 4, abs=1e-3)
    assert found.calibration_error == pytest.approx((1 + 2 / 3) / 4, abs=1e-3)


def test_what_was_not_measured_is_unknown() -> None:
    found = measure(scores(LOGITS, oov=[0, 0, 0, 0], counts=[1, 1, 1, 1]), temperature=1.0)
    assert (found.accuracy, found.calibration_error, found.latency_p50_ms, found.latency_p95_ms) == (None,) * 4


def test_the_latency_is_that_of_one_text_alone_at_its_95th_percentile() -> None:
    clock, asked = ManualClock(), list[Sequence[str]]()

    def predict(texts: Sequence[str]) -> None:
        asked.append(texts)
        clock.advance(0.100 if texts == ["slow"] else 0.010)

    texts = ["quick"] * 90 + ["slow"] * 10
    found = latency_of(predict, texts, clock)
    assert found is not None
    assert [found.p50_ms, found.p95_ms] == pytest.approx([10.0, 100.0])
    assert all(len(some) == 1 for some in asked)


def test_no_texts_have_no_latency() -> None:
    assert latency_of(lambda _texts: None, [], ManualClock()) is None
