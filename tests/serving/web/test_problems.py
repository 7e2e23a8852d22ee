"""Errors in the form of RFC 9457."""

from __future__ import annotations

import json

from hypothesis import given

from failsoft.serving.web.problems import Problem, problem, problem_answer
from tests.serving.odd_text import any_text


@given(any_text)
def test_a_problem_can_always_be_sent_and_has_the_form_of_rfc_9457(detail: str) -> None:
    body = problem(422, detail, instance=f"/v1/{detail}")
    json.dumps(body, ensure_ascii=False).encode()
    assert Problem.model_validate(body).title == "Unprocessable " + body["title"].split(" ", 1)[1]
    assert body["type"] == "about:blank"
    assert body["instance"].isascii()


def test_a_status_without_a_name_still_has_a_title() -> None:
    assert problem(799, "odd")["title"] == "Error"


def test_the_whole_answer_says_what_it_is_and_when_to_come_back() -> None:
    answer = problem_answer(429, "full", instance="/v1/predict", headers={"Retry-After": "1"})
    assert (answer.status_code, answer.headers["content-type"]) == (429, "application/problem+json")
    assert answer.headers["retry-after"] == "1"
    assert json.loads(bytes(answer.body))["instance"] == "/v1/predict"
