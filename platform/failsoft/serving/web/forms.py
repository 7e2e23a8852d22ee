"""How an answer looks over the wire: what every answer says, and the app's own output beside it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

from pydantic import BaseModel, Field, TypeAdapter, ValidationError, WithJsonSchema, create_model

from failsoft.errors import ConfigError
from failsoft.serving.web.messages import Answer, Entity

_OWN = frozenset(Answer.model_fields) | {"entities"}

_SAID = {
    "request_id": "",
    "confidence": None,
    "release": None,
    "stage": "",
    "epoch": 0,
    "latency_ms": 0.0,
}
"""What every answer says, but for who gives it."""


def misfit(error: ValidationError) -> str:
    """What an answer that was written by hand does not take, in one line."""
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc']))} does not fit the app's own form of answers: {first['msg']}"


@dataclass(frozen=True, kw_only=True)
class AnswerForm:
    """The app's part of an answer."""

    field: str = "output"
    """Name of the field that holds the output."""
    output: Any = Any
    """Type of the output, for the API's description. It is not checked for each answer: a model's own quality kind and
    its rungs say what is an answer, and a caller gets what they said."""
    example: Any = None
    """An output, for the API's description."""
    entities: bool = False
    """Whether answers have named pieces of the caller's text."""
    model: type[Answer] | None = None
    """A whole answer, written by hand; None: one is made of the fields above."""

    def __post_init__(self) -> None:
        """Refuse a field that every answer has already."""
        if not self.field.isidentifier() or self.field in _OWN:
            raise ConfigError(f"field is {self.field!r}; name the output's field otherwise than {sorted(_OWN)}")

    def one(self) -> type[Answer]:
        """The class of one answer."""
        return self.model or _made(self.field, ByIdentity(self.output), entities=self.entities)

    def several(self) -> type[BaseModel]:
        """The class of the answers to several items."""
        return _list_of(self.one())

    def check(self, output: Any, source: str) -> None:
        """Whether an answer can be made of this; one that is made of the fields above takes anything.

        Raises:
            ValueError: the answer that was written by hand does not take it; says why.
        """
        if self.model is not None:
            try:
                self.model(
                    **_SAID, **{self.field: output, "source": source}, **({"entities": []} if self.entities else {})
                )
            except ValidationError as error:
                raise ValueError(misfit(error)) from None

    def fill(self, output: Any, entities: list[Entity], said: dict[str, Any]) -> Answer:
        """An answer; ``said`` is what every answer says."""
        said[self.field] = output
        if self.entities:
            said["entities"] = entities
        return self.one()(**said)


class ByIdentity:
    """A type as the key of a cache: the very same one. Not every type can be hashed."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind

    def __hash__(self) -> int:
        return id(self.kind)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByIdentity) and self.kind is other.kind


@lru_cache
def _made(field: str, output: ByIdentity, *, entities: bool) -> type[Answer]:
    """Answers are made for every request, their class once. It is not kept in the form, which travels."""
    schema = TypeAdapter(output.kind).json_schema()
    fields: dict[str, Any] = {field: (Annotated[Any, WithJsonSchema(schema)], ...)}
    if entities:
        fields["entities"] = (list[Entity], Field(description="Named pieces of the caller's text."))
    return create_model("Answered", __base__=Answer, __doc__="The answer to one item, and who gave it.", **fields)


@lru_cache
def _list_of(one: type[Answer]) -> type[BaseModel]:
    doc = "Answers in the order of the items; each has a source of its own."
    each = Field(description="One for each item, in the same order.")
    answers: dict[str, Any] = {"answers": (list[one], each)}  # type: ignore[valid-type]  # made at run time
    return create_model(f"{one.__name__}List", __doc__=doc, **answers)
