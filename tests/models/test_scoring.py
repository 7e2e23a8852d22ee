"""Quality numbers, by hand."""

from __future__ import annotations

import json

import pytest

from failsoft.errors import CorpusError
from failsoft.models.corpus import Span, Utterance
from failsoft.models.scoring import Prediction, evaluate

CITY, TIME = Span(0, 4, "city"), Span(5, 8, "time")


def test_only_the_exact_span_with_the_exact_slot_counts() -> None:
    truth = [
        Utterance(id="1", text="rome now", intent="a", spans=(CITY, TIME)),
        Utterance(id="2", text="rome now", intent="a", spans=(CITY,)),
        Utterance(id="3", text="rome now", intent="b"),
    ]
    answers = [
        Prediction(intent="a", spans=(CITY, Span(5, 7, "time"))),
        Prediction(intent="b", spans=(Span(0, 4, "time"),)),
        Prediction(intent="b"),
    ]
    quality = evaluate(truth, answers)
    assert quality.intent_accuracy == pytest.approx(2 / 3)
    assert (quality.slot_precision, quality.slot_recall) == pytest.approx((1 / 3, 1 / 3))
    assert quality.slot_f1 == pytest.approx(1 / 3)
    assert quality.per_intent["a"].accuracy == 0.5
    assert quality.per_intent["b"].support == 1
    assert json.loads(json.dumps(quality.as_dict()))["samples"] == 3


def test_without_any_slot_there_is_nothing_wrong_with_the_slots() -> None:
    quality = evaluate([Utterance(id="1", text="go", intent="a")], [Prediction(intent="a")])
    assert quality.slot_f1 == 1.0


def test_nothing_to_score_is_an_error_and_no_perfect_score() -> None:
    with pytest.raises(CorpusError, match="0 predictions for 0 utterances"):
        evaluate([], [])
    with pytest.raises(CorpusError, match="0 predictions for 1"):
        evaluate([Utterance(id="1", text="go", intent="a")], [])
