"""The route for right labels that come after the answer. Whoever sends them has a token that opens nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from fastapi import Body, Depends, FastAPI, Response, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from failsoft.serving.watching.answer_memory import answer_key
from failsoft.serving.watching.late_labels import Told
from failsoft.serving.web.api_description import refusals
from failsoft.serving.web.as_json import read_as_json
from failsoft.serving.web.as_sent import as_sent
from failsoft.serving.web.messages import MAX_TEXTS, Id

LABELS = "/v1/labels"
MAX_LABELS = 1000
"""In one request."""
_MAX_LABEL_CHARS = 1000


def _fits(label: Any) -> Any:
    chars = len(json.dumps(label))
    if chars > _MAX_LABEL_CHARS:
        raise ValueError(f"a label of {chars} characters of JSON, at most {_MAX_LABEL_CHARS} are compared")
    return label


class LateLabel(BaseModel):
    """What the right answer to one item would have been."""

    model_config = ConfigDict(extra="forbid")

    request_id: Id = Field(
        description="As it came back in the answer. Labels of an id that stands for several answers count nothing."
    )
    item: int = Field(default=0, ge=0, lt=MAX_TEXTS, description="Place among several items of one request.")
    label: Annotated[Any, AfterValidator(_fits)] = Field(description="The right output, as the app gives outputs.")


class LateLabels(BaseModel):
    """Labels of answers that were given before: of right ones and wrong ones alike, else they say nothing."""

    model_config = ConfigDict(extra="forbid")

    labels: list[LateLabel] = Field(min_length=1, max_length=MAX_LABELS)


class LabelEnds(BaseModel):
    """How many labels came to which end; an end that none came to is left out."""

    counted: int = Field(default=0, description="Held against, or for, the weights that gave the answer.")
    repeated: int = Field(default=0, description="The answer has its label already.")
    handed_on: int = Field(default=0, description="This gateway did not give the answer: the others are asked.")
    not_a_models: int = Field(default=0, description="The fallback gave the answer.")
    other_weights: int = Field(default=0, description="The weights that gave the answer are not loaded any more.")
    unknown_label: int = Field(default=0, description="The release knows no such label.")
    ambiguous: int = Field(default=0, description="Different answers were given under this id.")
    not_compared: int = Field(default=0, description="Nobody can say whether the answer fits the label.")


_EXAMPLES: dict[str, Any] = {
    "two": {
        "value": {
            "labels": [
                {"request_id": "7c0f", "label": "PlayMusic"},
                {"request_id": "b-1", "item": 1, "label": "GetWeather"},
            ]
        }
    }
}
_ENDS: dict[str, Any] = {"ends": {"value": {"counted": 1, "handed_on": 1}}}
_Token = Annotated[
    HTTPAuthorizationCredentials | None,
    Security(HTTPBearer(auto_error=False, scheme_name="labels", description="The label token, or the operator's.")),
]


def add_labels(
    app: FastAPI, take: Callable[[Sequence[Told]], dict[str, int]], guard: Callable[[str | None], None]
) -> None:
    """Add the route.

    Args:
        app: of the gateway.
        take: counts labels and says how many came to which end; returns at once.
        guard: raises NotAuthorizedError unless an Authorization header may send labels.
    """

    def may_label(token: _Token) -> None:
        guard(None if token is None else f"{token.scheme} {token.credentials}")

    async def labels(
        body: Annotated[LateLabels, read_as_json(LateLabels), Body(openapi_examples=_EXAMPLES)],
    ) -> Response:
        return as_sent(take([Told(answer_key(one.request_id, one.item), one.label) for one in body.labels]))

    app.add_api_route(
        LABELS,
        labels,
        methods=["POST"],
        summary="Tell the right labels of answers that were given before; the same label twice counts once",
        dependencies=[Depends(may_label)],
        response_model=LabelEnds,
        response_description="How many came to which end",
        responses=refusals(LABELS, 400, 401, 413, 422) | {200: {"content": {"application/json": {"examples": _ENDS}}}},
    )
