"""A model's raw scores become a judged reading; what can't be judged is never usable."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace

import numpy as np
import pytest
from ray import cloudpickle

from failsoft.health.window import Outcome
from failsoft.models.scores import ScoreBatch, ScoredSpan
from failsoft.serving.arms.replies import ModelReply, read_reply
from failsoft.serving.quality.intents import IntentsAndEntities
from failsoft.serving.request import Reading


def reply_of(rows: list[list[float]], spans: list[list[ScoredSpan]]) -> ModelReply:
    count = len(rows)
    scores = ScoreBatch(
        intents=("play_music", "get_weather", "set_alarm"),
        intent_logits_BC=np.asarray(rows, dtype=np.float32),
        spans=spans,
        counts_B=np.ones(count, dtype=np.int32),
        oov_fraction_B=np.zeros(count, dtype=np.float32),
        left_out_B=np.zeros(count, dtype=np.int32),
    )
    return ModelReply(scores=scores, measures={"temperature": 1.0}, release="r1", load_generation=3, took_ms=4.0)


def read(*rows: list[float], spans: list[list[ScoredSpan]] | None = None, texts: int | None = None) -> list[Reading]:
    reply = reply_of(list(rows), spans or [[] for _ in rows])
    return read_reply(reply, IntentsAndEntities(), texts=texts or len(rows))


def test_a_clear_answer_is_good_and_names_its_load() -> None:
    span = ScoredSpan(start=5, end=9, slot="genre", confidence=0.9)
    (reading,) = read([0.0, 9.0, 0.0], spans=[[span]])
    assert (reading.output, reading.outcome, reading.usable) == ("get_weather", Outcome.GOOD, True)
    assert (reading.release, reading.load_generation) == ("r1", 3)
    assert [(entity.start, entity.end, entity.slot) for entity in reading.entities] == [(5, 9, "genre")]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_none_is_weak_unusable_and_carries_no_spans(bad: float) -> None:
    span = ScoredSpan(start=0, end=4, slot="genre", confidence=0.9)
    (reading,) = read([bad, bad, bad], spans=[[span]])
    assert (reading.outcome, reading.usable, reading.entities) == (Outcome.WEAK, False, ())
    assert reading.why


def test_each_text_of_a_batch_is_judged_for_itself() -> None:
    sharp, flat = read([9.0, 0.0, 0.0], [0.1, 0.0, 0.0])
    assert (sharp.outcome, flat.outcome) == (Outcome.GOOD, Outcome.WEAK)


def test_an_answer_to_another_number_of_texts_answers_none_of_them() -> None:
    readings = read([9.0, 0.0, 0.0], texts=3)
    assert [reading.usable for reading in readings] == [False, False, False]


def test_a_span_that_is_not_credible_is_left_out() -> None:
    spans = [[ScoredSpan(0, 4, "genre", 0.2), ScoredSpan(5, 9, "artist", 0.9)]]
    (reading,) = read([0.0, 9.0, 0.0], spans=spans)
    assert [entity.slot for entity in reading.entities] == ["artist"]


@pytest.mark.parametrize(
    "spans",
    [[], [[ScoredSpan(-1, 4, "genre", 0.9)]], [[ScoredSpan(4, 0, "genre", 0.9)]]],
    ids=["absent", "below", "backward"],
)
def test_spans_that_do_not_fit_their_text_are_left_out_and_raise_nothing(spans: list[list[ScoredSpan]]) -> None:
    (reading,) = read_reply(reply_of([[0.0, 9.0, 0.0]], spans), IntentsAndEntities(), texts=1)
    assert (reading.output, reading.usable, reading.entities) == ("get_weather", True, ())


def test_a_model_that_names_no_intent_has_no_usable_answer() -> None:
    nameless = replace(reply_of([[]], [[]]).scores, intents=())
    reply = ModelReply(scores=nameless, measures={"temperature": 1.0}, release="r1", load_generation=3, took_ms=4.0)
    (reading,) = read_reply(reply, IntentsAndEntities(), texts=1)
    assert (reading.outcome, reading.usable) == (Outcome.WEAK, False)


def test_a_reply_arrives_in_the_gateway_as_it_was_sent() -> None:
    sent = reply_of([[3.0, 0.0]], [[ScoredSpan(5, 9, "genre", 0.9)]])
    back = pickle.loads(cloudpickle.dumps(sent, protocol=5))  # noqa: S301 -- made one line above
    assert (back.measures, back.release, back.load_generation) == (
        sent.measures,
        sent.release,
        sent.load_generation,
    )
    read = [repr(read_reply(reply, IntentsAndEntities(), texts=1)) for reply in (back, sent)]
    assert read[0] == read[1], "compared as written: in what is not known stands NaN, which equals nothing"


def test_a_reading_says_how_long_the_model_took_with_how_many_texts_and_how_many_words_it_does_not_know() -> None:
    reply = reply_of([[3.0, 0.0, 0.0], [3.0, 0.0, 0.0]], [[], []])
    scores = replace(reply.scores, oov_fraction_B=np.asarray([0.25, np.nan], dtype=np.float32))
    first, second = read_reply(replace(reply, scores=scores), IntentsAndEntities(), texts=2)
    assert (first.model_ms, first.together, first.oov_share) == (4.0, 2, 0.25)
    assert math.isnan(second.oov_share), "what is no share is unknown"
    assert first.words == reply.scores.counts_B[0]
