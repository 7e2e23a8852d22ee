r"""What goes over the wire: requests, answers, and problems in the form of RFC 9457.

Strings of a request may hold lone surrogates, since ``json.loads`` accepts ``"\ud83d"``; texts are handed on as they
came, for the sanitizer to mend and count, while ids, which come back in answers and logs, are mended here.
"""

from __future__ import annotations

from enum import StrEnum
from http import HTTPStatus
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema, model_validator

MAX_TEXT_CHARS = 8_000
"""A longer text is refused: the example's longest training text has 200 characters."""
MAX_TEXTS = 64
"""Texts in one request."""
MAX_CHARS = 64_000
"""Characters in all texts of one request: cleaning them takes tens of ms, for which other callers wait."""
MAX_ID_CHARS = 200


class Source(StrEnum):
    """Who gave an answer."""

    PRIMARY = "primary"
    """The release in service."""
    CANARY = "canary"
    """The release on its way up, or on its way back after an incident."""
    PREVIOUS = "previous"
    """The release before, kept warm."""
    GBDT = "gbdt"
    """The gradient-boosted fallback inside the gateway."""
    RULES = "rules"
    """The rules inside the gateway; they always answer."""


def _whole(text: str) -> str:
    """The text with half characters replaced: what JSON and logs can carry."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _fits_text(text: str) -> str:
    return _at_most(text, MAX_TEXT_CHARS)


def _fits_id(text: str) -> str:
    if not text:
        raise ValueError("an id has at least 1 character; leave it out instead")
    return _whole(_at_most(text, MAX_ID_CHARS))


def _at_most(text: str, chars: int) -> str:
    if len(text) > chars:
        raise ValueError(f"{len(text)} characters, at most {chars} are answered; send a shorter one")
    return text


# Not Field(max_length=…): with it pydantic refuses every lone surrogate before the sanitizer could mend it.
Text = Annotated[str, AfterValidator(_fits_text), WithJsonSchema({"type": "string", "maxLength": MAX_TEXT_CHARS})]
Id = Annotated[
    str, AfterValidator(_fits_id), WithJsonSchema({"type": "string", "minLength": 1, "maxLength": MAX_ID_CHARS})
]


_TEXTS = f"Several texts, of at most {MAX_CHARS} characters together."


class PredictRequest(BaseModel):
    """One text, or several that are answered item by item."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"text": "play some jazz in the kitchen", "key": "user-17"},
                {"texts": ["wake me at seven", "will it rain tomorrow"], "request_id": "b-1"},
            ]
        },
    )

    text: Text | None = Field(default=None, description="The text to answer.")
    texts: list[Text] | None = Field(default=None, min_length=1, max_length=MAX_TEXTS, description=_TEXTS)
    key: Id | None = Field(default=None, description="Caller or session: the same key stays with the same model.")
    request_id: Id | None = Field(default=None, description="Comes back in the answer; made up when absent.")

    @model_validator(mode="after")
    def _one_of_both_and_not_too_much(self) -> Self:
        if (self.text is None) == (self.texts is None):
            raise ValueError("give either text or texts, not both and not none")
        chars = sum(map(len, self.texts or ()))
        if chars > MAX_CHARS:
            raise ValueError(f"{chars} characters together, at most {MAX_CHARS} are answered at once; send fewer texts")
        return self

    @property
    def all_texts(self) -> list[str]:
        """The texts to answer, one or several."""
        if self.texts is not None:
            return self.texts
        return [self.text or ""]


class Entity(BaseModel):
    """A named piece of the caller's text."""

    model_config = ConfigDict(frozen=True)

    start: int = Field(ge=0, description="First character in the original text, counted in code points.")
    end: int = Field(ge=0, description="One after the last character.")
    slot: str
    text: str = Field(description="The piece itself, as the caller wrote it.")
    confidence: float | None = Field(default=None, description="Null when the source has no honest one.")


class PredictAnswer(BaseModel):
    """The answer to one text, and who gave it."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "request_id": "7c0f",
                    "intent": "PlayMusic",
                    "confidence": 0.98,
                    "entities": [{"start": 10, "end": 14, "slot": "genre", "text": "jazz", "confidence": 0.93}],
                    "source": "primary",
                    "degrade_reason": None,
                    "release": "r-20260301",
                    "stage": "serving",
                    "epoch": 12,
                    "latency_ms": 6.2,
                }
            ]
        }
    )

    request_id: str
    intent: str
    confidence: float | None = Field(description="Calibrated; null when the source has no honest one, as rules have.")
    entities: list[Entity]
    source: Source
    degrade_reason: str | None = Field(default=None, description="Why the primary model did not give this answer.")
    refused_confidence: float | None = Field(
        default=None, description="Confidence of the model's own answer that a net refused; null when there was none."
    )
    release: str | None = Field(default=None, description="The release that answered; null for the fallback.")
    stage: str
    epoch: int
    latency_ms: float = Field(description="Time inside the gateway.")


class PredictAnswers(BaseModel):
    """Answers in the order of the texts; each has a source of its own."""

    answers: list[PredictAnswer]


class Problem(BaseModel):
    """An error body (RFC 9457, ``application/problem+json``)."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str


def problem(status: int, detail: str) -> dict[str, Any]:
    """The body for an HTTP error: the status in words, and what to do in ``detail``."""
    return Problem(title=_title(status), status=status, detail=_whole(detail)).model_dump()


def _title(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Error"
