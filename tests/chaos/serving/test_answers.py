"""What the healthy app answers, learned from its answers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.drills.serving.answers import Expectation
from failsoft.drills.serving.course import Healthy, by_model
from failsoft.drills.serving.target import ServeTarget
from failsoft.drills.serving.traffic import Asking, Reply, read_answer

JSON: Any = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def said(label: str, number: int, score: float = 0.9) -> dict[str, Any]:
    return {"label": label, "score": score, "request_id": f"r{number}", "at": number, "parts": [{"name": label}]}


def test_fields_that_change_each_time_are_not_asked_for_and_the_others_are() -> None:
    expected = Expectation([[said("cat", number) for number in range(4)]])
    assert expected.right(0, said("cat", 99)) is True
    assert expected.right(0, said("dog", 99)) is False
    assert expected.right(0, said("cat", 99, score=0.2)) is False
    assert expected.right(0, said("cat", 99, score=0.9000001)) is True
    assert expected.right(0, {"label": "cat"}) is False


def test_an_app_that_never_says_the_same_has_no_right_answer() -> None:
    expected = Expectation([[{"text": f"story {number}"} for number in range(5)]])
    assert expected.right(0, {"text": "story 1"}) is None
    assert expected.knows == 0


def test_few_answers_teach_nothing() -> None:
    assert Expectation([[said("cat", 1), said("cat", 2)]]).right(0, said("cat", 3)) is None


@given(JSON)
def test_an_app_that_repeats_itself_is_right_whatever_it_says(body: Any) -> None:
    right = Expectation([[body] * Expectation.MIN_BODIES]).right(0, body)
    assert right in {True, None}


def asking(**more: Any) -> Asking:
    target = ServeTarget(app="a:b", **more)
    expected = Expectation([[{"intent": "play", "source": "primary"}] * 3])
    return Asking(url="http://x/", payloads=({"text": "x"},), target=target, expected=expected)


def answer(status: int, body: Any, **more: Any) -> Reply:
    return Reply(payload=0, status=status, body=body, sent_s=1.0, done_s=2.0, **more)


def test_only_the_models_own_answers_are_called_wrong() -> None:
    wrong = {"intent": "stop", "source": "primary", "stage": "serving", "epoch": 3}
    assert read_answer(asking(), answer(200, wrong)).right is False
    fallback = read_answer(asking(), answer(200, wrong | {"source": "rules", "degrade_reason": "late"}))
    assert (fallback.right, fallback.reason, fallback.epoch) == (None, "late", 3)


def test_a_lost_request_says_why() -> None:
    assert read_answer(asking(), answer(0, None, reason="ReadTimeout")).reason == "ReadTimeout"
    assert read_answer(asking(), answer(500, "Internal Server Error")).reason == "Internal Server Error"
    assert read_answer(asking(), answer(429, {"detail": "too much"})).reason == "too much"
    assert read_answer(asking(), answer(429, {"detail": "too much"})).turned_away


def test_strange_bodies_are_read_too() -> None:
    strange = read_answer(asking(), answer(200, {"source": ["x"], "epoch": "4", "stage": 7}))
    assert (strange.source, strange.epoch, strange.stage) == (None, None, None)


def steady(source: str | None, *, until_s: float = 4.0) -> list[Any]:
    body = {"intent": "play"} | ({} if source is None else {"source": source})
    replies = [
        Reply(payload=0, status=200, body=body, sent_s=n / 10, done_s=n / 10 + 0.01) for n in range(int(until_s * 10))
    ]
    return [read_answer(asking(), reply) for reply in replies]


def test_an_app_is_whole_when_the_model_answers_as_often_as_before_and_nothing_is_lost() -> None:
    models = ("primary", "canary")
    healthy = Healthy.of(steady("primary"), models)
    assert healthy.whole(steady("primary"), 4.0, 10.0, models)
    assert not healthy.whole(steady("rules"), 4.0, 10.0, models)
    assert not healthy.whole(steady("primary", until_s=2.5), 4.0, 10.0, models), "too few came lately"
    assert not healthy.whole([], 4.0, 10.0, models)
    assert by_model(steady(None)[0], models)


def test_nothing_healthy_is_known_without_answers() -> None:
    with pytest.raises(ValueError, match="no answers"):
        Healthy.of([], ("primary",))
