"""An app's answers as tensors: its own output, how sure it is, who gave it and why."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from failsoft.errors import BadRequestError
from failsoft.serving.quality.classes import Classification
from failsoft.serving.quality.numbers import Regression
from failsoft.serving.task import Task
from failsoft.serving.web.messages import Answer
from failsoft.serving.web.protocol.columns import schema_column
from failsoft.serving.web.protocol.tensors import BYTES, Tensor, Wanted

CONFIDENCE, SOURCE, REASON, RELEASE = "confidence", "source", "degrade_reason", "release"
_INT64 = np.iinfo(np.int64)


@dataclass(frozen=True, kw_only=True)
class OutputForm:
    """All output tensors of an app; each has an element for each item."""

    field: str
    """Name of the app's own output."""
    datatype: str
    """Of it, as it usually is. A rung may answer another kind of value: that response's own datatype says so."""
    entities: bool

    def cards(self) -> list[dict[str, Any]]:
        """As metadata show them."""
        own = [(self.field, self.datatype)] + ([("entities", BYTES)] if self.entities else [])
        said = [(CONFIDENCE, "FP32"), (SOURCE, BYTES), (REASON, BYTES), (RELEASE, BYTES)]
        return [{"name": name, "datatype": datatype, "shape": [-1]} for name, datatype in own + said]

    def check(self, wanted: Sequence[Wanted]) -> None:
        """Refuse outputs that there are not.

        Raises:
            BadRequestError: says which there are.
        """
        known = [card["name"] for card in self.cards()]
        for one in wanted:
            if one.name not in known:
                raise BadRequestError(f"{one.name[:80]!r} is no output; this model's are {', '.join(known)}")

    def tensors(self, answers: Sequence[Answer], wanted: Sequence[Wanted]) -> list[Tensor]:
        """What a caller gets, in the order it asked for; everything when it named nothing."""
        found = {tensor.name: tensor for tensor in self._all(answers)}
        return [found[one.name] for one in wanted] if wanted else list(found.values())

    def _all(self, answers: Sequence[Answer]) -> Iterator[Tensor]:
        yield own_output(self.field, self.datatype, [getattr(answer, self.field) for answer in answers])
        if self.entities:
            pieces = [[one.model_dump() for one in getattr(answer, "entities", ())] for answer in answers]
            yield _column("entities", BYTES, [_as_document(one) for one in pieces])
        yield _column(CONFIDENCE, "FP32", [answer.confidence for answer in answers])
        yield _column(SOURCE, BYTES, [str(answer.source) for answer in answers])
        yield _column(REASON, BYTES, [answer.degrade_reason or "" for answer in answers])
        yield _column(RELEASE, BYTES, [answer.release or "" for answer in answers])


def output_form(task: Task) -> OutputForm:
    """The output tensors of an app: the output as its form of answers declares it, else as its quality gives it."""
    form = task.answers
    return OutputForm(field=form.field, datatype=_declared(task), entities=form.entities)


def own_output(name: str, datatype: str, values: Sequence[Any]) -> Tensor:
    """Outputs as a tensor of the declared datatype where all of them are such values, else of what they are.

    Rows of numbers of one length are a matrix of FP64; what is neither number nor text is JSON, a document an item.
    """
    for kind in (datatype, "BOOL", "INT64", "FP64", BYTES):
        if all(_is(kind, value) for value in values):
            return _column(name, kind, [float(value) if kind == "FP64" else value for value in values])
    widths = {len(value) if isinstance(value, list | tuple) else 0 for value in values}
    if len(widths) == 1 and 0 not in widths and all(_is("FP64", one) for value in values for one in value):
        flat = [float(one) for value in values for one in value]
        return Tensor(name=name, datatype="FP64", shape=(len(values), widths.pop()), values=flat)
    return _column(name, BYTES, [_as_document(value) for value in values])


def _declared(task: Task) -> str:
    column = schema_column(task.answers.output)
    if column.width is None and not column.is_json:
        return column.datatype
    kind = task.kind
    if isinstance(kind, Classification):
        return "INT64" if kind.labels is None else BYTES
    return "FP64" if isinstance(kind, Regression) or column.width is not None else BYTES


def _is(datatype: str, value: Any) -> bool:
    if datatype == BYTES:
        return isinstance(value, str)
    if datatype == "BOOL":
        return isinstance(value, bool)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if isinstance(value, float):
        return datatype == "FP64"
    return _INT64.min <= value <= _INT64.max


def _column(name: str, datatype: str, values: Sequence[Any]) -> Tensor:
    return Tensor(name=name, datatype=datatype, shape=(len(values),), values=values)


def _as_document(value: Any) -> str:
    """As JSON; a text is itself."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
