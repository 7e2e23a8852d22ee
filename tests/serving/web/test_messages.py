"""What may be asked, and that every answer can travel."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from failsoft.serving.web.messages import MAX_TEXT_CHARS, PredictAnswer, PredictRequest, Source


def asked(body: str) -> PredictRequest:
    return PredictRequest.model_validate(json.loads(body))


def test_a_lone_surrogate_in_a_text_gets_as_far_as_the_sanitizer() -> None:
    """U1: ``json.loads`` accepts it, pydantic's own length check does not."""
    assert asked('{"text": "play \\ud83d"}').items == ["play \ud83d"]


def test_a_lone_surrogate_in_an_id_is_mended_because_ids_come_back_in_answers() -> None:
    request = asked('{"text": "x", "key": "k\\ud83d", "request_id": "\\udc00"}')
    assert (request.key, request.request_id) == ("k\ufffd", "\ufffd")


def test_one_text_and_several_are_asked_in_the_same_way() -> None:
    assert asked('{"text": ""}').items == [""]
    assert asked('{"texts": ["a", "b"]}').items == ["a", "b"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "give either text or texts"),
        ({"text": "a", "texts": ["b"]}, "give either text or texts"),
        ({"text": "a" * (MAX_TEXT_CHARS + 1)}, "at most 8000"),
        ({"texts": ["a" * (MAX_TEXT_CHARS + 1)]}, "at most 8000"),
        ({"texts": []}, "at least 1"),
        ({"texts": ["a"] * 65}, "at most 64"),
        ({"texts": ["a" * MAX_TEXT_CHARS] * 9}, "72000 characters together, at most 64000"),
        ({"text": 7}, "valid string"),
        ({"text": "a", "timeout_ms": 0}, "greater than 0"),
        ({"text": "a", "timeout_ms": float("nan")}, "less than or equal"),
        ({"text": "a", "timeout_ms": float("inf")}, "less than or equal"),
        ({"text": "a", "key": ""}, "at least 1 character"),
        ({"text": "a", "key": "k" * 201}, "at most 200"),
        ({"text": "a", "txet": "b"}, "not permitted"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_in_words(body: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        PredictRequest.model_validate(body)


def test_the_longest_text_and_the_longest_list_are_accepted() -> None:
    assert len(PredictRequest(text="a" * MAX_TEXT_CHARS).items[0]) == MAX_TEXT_CHARS
    assert len(PredictRequest(texts=["a" * 1000] * 64).items) == 64


def test_the_api_description_states_the_limits_and_has_examples() -> None:
    schema = PredictRequest.model_json_schema()
    assert schema["properties"]["text"]["anyOf"][0] == {"type": "string", "maxLength": 8000}
    assert schema["properties"]["texts"]["anyOf"][0]["maxItems"] == 64
    for example in schema["examples"]:
        PredictRequest.model_validate(example)
    for example in PredictAnswer.model_json_schema()["examples"]:
        PredictAnswer.model_validate(example)


@pytest.mark.parametrize(
    ("said", "header", "holds"), [(None, None, None), (None, 80.0, 80.0), (90.0, 80.0, 80.0), (70.0, 80.0, 70.0)]
)
def test_the_shorter_of_two_timeouts_holds(said: float | None, header: float | None, holds: float | None) -> None:
    assert PredictRequest(text="play", timeout_ms=said).within(header).timeout_ms == holds


def test_an_answer_names_its_source_in_plain_words() -> None:
    assert [source.value for source in Source] == ["primary", "canary", "previous", "gbdt", "rules"]
