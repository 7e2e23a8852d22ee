r"""What goes over the wire: requests and answers; errors are in ``problems.py``.

Strings of a request may hold lone surrogates, since ``json.loads`` accepts ``"\ud83d"``; texts are handed on as they
came, for the sanitizer to mend and count, while ids, which come back in answers and logs, are mended here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema, model_validator

from failsoft.health.callers import caller_of
from failsoft.serving.web.problems import whole

MAX_TEXT_CHARS = 8_000
"""A longer text is refused: the example's longest training text has 200 characters."""
MAX_TEXTS = 64
"""Texts in one request."""
MAX_CHARS = 64_000
"""Characters in all texts of one request: cleaning them takes tens of ms, for which other callers wait."""
MAX_ID_CHARS = 200
MAX_TIMEOUT_MS = 600_000.0
"""Nobody means more; the configuration bounds what is granted."""


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


def _fits_text(text: str) -> str:
    return _at_most(text, MAX_TEXT_CHARS)


def _fits_id(text: str) -> str:
    if not text:
        raise ValueError("an id has at least 1 character; leave it out instead")
    return whole(_at_most(text, MAX_ID_CHARS))


def _at_most(text: str, chars: int) -> str:
    if len(text) > chars:
        raise ValueError(f"{len(text)} characters, at most {chars} are answered; send a shorter one")
    return text


# Not Field(max_length=…): with it pydantic refuses every lone surrogate before the sanitizer could mend it.
Text = Annotated[str, AfterValidator(_fits_text), WithJsonSchema({"type": "string", "maxLength": MAX_TEXT_CHARS})]
Id = Annotated[
    str, AfterValidator(_fits_id), WithJsonSchema({"type": "string", "minLength": 1, "maxLength": MAX_ID_CHARS})
]


_TIMEOUT = "The caller waits so long for the whole answer; less than the usual deadline brings the fallback sooner."
_CALLER = "Whose request it is, as a tenant's name; else the key. Who alone sends what goes badly is judged alone."
_REQUEST_ID = "Comes back in the answer; made up when absent. Where labels will come, each request needs its own."
_TEXTS = f"Several texts, of at most {MAX_CHARS} characters together."


class Ask(BaseModel, ABC):
    """What every request says: who asks, and how long it waits. What it asks about, each app's inputs add."""

    model_config = ConfigDict(extra="forbid")

    key: Id | None = Field(default=None, description="Caller or session: the same key stays with the same model.")
    caller: Id | None = Field(default=None, description=_CALLER)
    request_id: Id | None = Field(default=None, description=_REQUEST_ID)
    timeout_ms: float | None = Field(default=None, gt=0.0, le=MAX_TIMEOUT_MS, description=_TIMEOUT)

    def within(self, timeout_ms: float | None) -> Self:
        """The same request, with ``timeout_ms`` if that is less than what it says itself."""
        if timeout_ms is None or (self.timeout_ms is not None and self.timeout_ms <= timeout_ms):
            return self
        return self.model_copy(update={"timeout_ms": timeout_ms})

    def asked_by(self, caller: str | None) -> Self:
        """The same request, of ``caller`` if somebody who knows says so; else of whom it says itself."""
        return self if caller is None else self.model_copy(update={"caller": caller})

    def keyed_by(self, key: str | None) -> Self:
        """The same request, with ``key`` if somebody who knows the session says so; else with its own."""
        return self if key is None else self.model_copy(update={"key": key})

    def identified(self, request_id: str | None) -> Self:
        """The same request, with an id that came beside it where it names none itself."""
        if request_id is None or self.request_id is not None:
            return self
        return self.model_copy(update={"request_id": request_id})

    @property
    def whose(self) -> int | None:
        """The number of its caller; None: it names none."""
        name = self.caller or self.key
        return None if name is None else caller_of(name)

    @property
    @abstractmethod
    def items(self) -> Sequence[Any]:
        """What to answer, one or several."""

    @property
    @abstractmethod
    def is_several(self) -> bool:
        """Whether it is answered by a list, be it of one."""


class PredictRequest(Ask):
    """One text, or several that are answered item by item."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"text": "play some jazz in the kitchen", "key": "user-17"},
                {"texts": ["wake me at seven", "will it rain tomorrow"], "request_id": "b-1"},
            ]
        },
    )

    text: Text | None = Field(default=None, description="The text to answer.")
    texts: list[Text] | None = Field(default=None, min_length=1, max_length=MAX_TEXTS, description=_TEXTS)

    @model_validator(mode="after")
    def _one_of_both_and_not_too_much(self) -> Self:
        if (self.text is None) == (self.texts is None):
            raise ValueError("give either text or texts, not both and not none")
        chars = sum(map(len, self.texts or ()))
        if chars > MAX_CHARS:
            raise ValueError(f"{chars} characters together, at most {MAX_CHARS} are answered at once; send fewer texts")
        return self

    @property
    def items(self) -> list[str]:
        """The texts to answer, one or several."""
        if self.texts is not None:
            return self.texts
        return [self.text or ""]

    @property
    def is_several(self) -> bool:
        """Whether ``texts`` was given."""
        return self.texts is not None


class Entity(BaseModel):
    """A named piece of the caller's text."""

    model_config = ConfigDict(frozen=True)

    start: int = Field(ge=0, description="First character in the original text, counted in code points.")
    end: int = Field(ge=0, description="One after the last character.")
    slot: str = Field(description="Which kind of piece it is, as the release names it.")
    text: str = Field(description="The piece itself, as the caller wrote it.")
    confidence: float | None = Field(default=None, description="Null when the source has no honest one.")


class Answer(BaseModel):
    """What every answer says: who gave it, why, and how sure it is. The answer itself, each app's form adds."""

    request_id: str = Field(description="The request's own, or one that was made up for it.")
    confidence: float | None = Field(description="Calibrated; null when the source has no honest one, as rules have.")
    source: str = Field(
        description="primary, canary or previous: that release's model; else the fallback of that name."
    )
    degrade_reason: str | None = Field(default=None, description="Why the primary model did not give this answer.")
    refused_confidence: float | None = Field(
        default=None, description="Confidence of the model's own answer that a net refused; null when there was none."
    )
    release: str | None = Field(default=None, description="The release that answered; null for the fallback.")
    stage: str = Field(description="Where the rollout stood: serving, degraded, shadow, canary, ramp_20 or ramp_50.")
    epoch: int = Field(description="Number of the routing plan under which this was answered; it only grows.")
    latency_ms: float = Field(description="Time inside the gateway.")


class PredictAnswer(Answer):
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

    intent: str = Field(description="What the caller wants, as the release names it.")
    entities: list[Entity] = Field(description="Named pieces of the caller's text.")
    source: Source = Field(description="Who gave this answer.")


class PredictAnswers(BaseModel):
    """Answers in the order of the texts; each has a source of its own."""

    answers: list[PredictAnswer]
