"""Scores cross processes for every answer: quickly, and as they were."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from ray import cloudpickle

from failsoft.models.scores import ScoreBatch, ScoredSpan, doubt_of

numbers = st.floats(allow_nan=False)
spans = st.builds(
    ScoredSpan, st.integers(), st.integers(), st.text(), numbers, st.none() | numbers, margin=st.none() | numbers
)


def batch(logits_BC: np.ndarray, rows: list[list[ScoredSpan]]) -> ScoreBatch:
    return ScoreBatch(
        intents=("play_music", "get_weather"),
        intent_logits_BC=logits_BC,
        spans=rows,
        counts_B=np.arange(len(logits_BC), dtype=np.int32),
        oov_fraction_B=np.linspace(0.0, 1.0, len(logits_BC), dtype=np.float32),
        left_out_B=np.zeros(len(logits_BC), dtype=np.int32),
    )


def there_and_back(scores: ScoreBatch) -> ScoreBatch:
    """As Ray sends it: written by its own pickler, read by Python's."""
    back: ScoreBatch = pickle.loads(cloudpickle.dumps(scores, protocol=5))  # noqa: S301 -- made one line above
    return back


@given(
    logits_BC=arrays(np.float32, st.tuples(st.integers(0, 4), st.integers(0, 3))),
    rows=st.lists(st.lists(spans, max_size=3), max_size=4),
)
def test_scores_arrive_as_they_were_sent_whatever_they_are(logits_BC: np.ndarray, rows: list[list[ScoredSpan]]) -> None:
    sent = batch(logits_BC, rows)
    back = there_and_back(sent)
    assert (back.intents, back.spans) == (sent.intents, sent.spans)
    for name in ("intent_logits_BC", "counts_B", "oov_fraction_B", "left_out_B"):
        before, after = getattr(sent, name), getattr(back, name)
        assert after.dtype == before.dtype
        assert np.array_equal(after, before, equal_nan=True)


@pytest.mark.parametrize("odd", [np.array([[None, "x"]], dtype=object), [[0.5, 0.5]], None])
def test_what_an_ill_model_gives_instead_of_numbers_arrives_too_for_the_gateway_to_judge(odd: object) -> None:
    sent = batch(np.zeros((1, 2), dtype=np.float32), [[]])
    object.__setattr__(sent, "intent_logits_BC", odd)
    assert np.array_equal(there_and_back(sent).intent_logits_BC, sent.intent_logits_BC)


def test_nothing_of_numpys_own_machinery_is_sent() -> None:
    """That is what takes the time."""
    body = cloudpickle.dumps(batch(np.zeros((3, 2), dtype=np.float32), [[], [], []]), protocol=5)
    assert b"numpy" not in body


def test_doubt_of_words_is_that_of_the_textbook_and_a_certain_word_has_none() -> None:
    probs_BTS = np.array([[[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.7, 0.2, 0.1]]])
    with np.errstate(divide="ignore"):
        entropy_BT, margin_BT = doubt_of(np.log(probs_BTS))
    thirds = -(0.7 * np.log(0.7) + 0.2 * np.log(0.2) + 0.1 * np.log(0.1)) / np.log(3)
    assert entropy_BT[0].tolist() == pytest.approx([np.log(2) / np.log(3), 0.0, thirds])
    assert margin_BT[0].tolist() == pytest.approx([0.0, 1.0, 0.5])


def test_doubt_of_a_word_whose_scores_are_no_numbers_is_none() -> None:
    entropy_BT, margin_BT = doubt_of(np.array([[[np.nan, 0.0], [-0.1, -2.4]]]))
    assert np.isnan(entropy_BT[0]).tolist() == np.isnan(margin_BT[0]).tolist() == [True, False]
