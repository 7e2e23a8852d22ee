"""What callers send and get, with examples: the API's description of one app."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from failsoft.serving.intake.inputs import Inputs, Instances
from failsoft.serving.task import Task
from failsoft.serving.web import examples
from failsoft.serving.web.forms import AnswerForm
from failsoft.serving.web.messages import Answer, Ask


@dataclass(frozen=True, kw_only=True)
class Wire:
    """The predict route of one app."""

    request: type[Ask]
    answer: type[Answer]
    answers: type[BaseModel]
    request_examples: Mapping[str, Any]
    answer_examples: Mapping[str, Any]


def wire_of(task: Task) -> Wire:
    """What the callers of an app send and get."""
    form = task.answers
    return Wire(
        request=task.inputs.request(),
        answer=form.one(),
        answers=form.several(),
        request_examples=_requests(task.inputs),
        answer_examples=examples.PREDICT_ANSWERS if form.field == "intent" else _answers(form),
    )


def _requests(inputs: Inputs) -> Mapping[str, Any]:
    if not isinstance(inputs, Instances):
        return examples.PREDICT_REQUESTS
    some = list(inputs.examples) or [{}]
    return {
        "one": {"summary": "One instance", "value": {"instance": some[0], "key": "user-17"}},
        "several": {
            "summary": "Several instances, answered item by item",
            "value": {"instances": (some * 2)[:2], "request_id": "b-1", "timeout_ms": 150.0},
        },
    }


def _answers(form: AnswerForm) -> Mapping[str, Any]:
    """The same as the example's, with another output."""
    model, fallback = (_with_output(examples.PREDICT_ANSWERS[which]["value"], form) for which in ("model", "fallback"))
    return {
        "model": {"summary": "The model answers", "value": model},
        "fallback": {"summary": "The model's answer would not do", "value": fallback},
        "several": {"summary": "Several items", "value": {"answers": [model, fallback]}},
    }


def _with_output(answer: Mapping[str, Any], form: AnswerForm) -> dict[str, Any]:
    said = {name: value for name, value in answer.items() if name not in ("intent", "entities")}
    return said | {form.field: form.example} | ({"entities": answer["entities"]} if form.entities else {})
