"""Which tensors an app's items are made of, derived from the items' own JSON schema.

A text is an element of the BYTES tensor ``text``. Instances that are flat objects have a tensor for each field; those
that are numbers, or rows of numbers, have one tensor ``instance``. Whatever else an instance is, it travels as JSON: an
element of BYTES is one document. So every app has inputs, and none declares them twice.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter
from pydantic.errors import PydanticUserError

from failsoft.errors import BadRequestError
from failsoft.serving.intake.inputs import Inputs, Instances
from failsoft.serving.web.messages import MAX_TEXTS
from failsoft.serving.web.protocol.tensors import BYTES, FLOATS, INTEGERS, Tensor, as_octets, as_text

_NUMBERS = frozenset(FLOATS) | frozenset(INTEGERS)
_SCALARS = {"number": "FP64", "integer": "INT64", "boolean": "BOOL", "string": BYTES}
_TAKES = {"FP64": _NUMBERS, "INT64": frozenset(INTEGERS), "BOOL": frozenset({"BOOL"}), BYTES: frozenset({BYTES})}
"""Datatypes that a column of each datatype reads: a model does not care in how many bits a number came."""
_ANY = 1 << 16
"""More than any row has; how many are right, the app's own schema says when the item is read."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """One input tensor: a value, or a row of values, for each item."""

    name: str
    datatype: str
    width: int | None = None
    """Values in one item's row; -1: any number; None: it is one value."""
    is_json: bool = False
    """Each element of BYTES is a JSON document."""
    is_needed: bool = True

    def card(self) -> dict[str, Any]:
        """As metadata show it."""
        shape = [-1] if self.width is None else [-1, self.width]
        return {"name": self.name, "datatype": self.datatype, "shape": shape}

    def rows(self, tensor: Tensor) -> list[Any]:
        """A value, or a list of values, for each item.

        Raises:
            BadRequestError: the tensor is of another datatype or shape.
        """
        in_rows = self.width is not None or (self.is_json and tensor.datatype in _NUMBERS)
        if tensor.datatype not in _TAKES[self.datatype] and not (self.is_json and in_rows):
            raise BadRequestError(f"input {self.name!r} is {tensor.datatype}; send it as {self.datatype}")
        sizes = tensor.shape
        if (
            len(sizes) > 2
            or (self.width is not None and len(sizes) < 2)
            or (not in_rows and sizes[1:] not in ((), (1,)))
        ):
            shape = "[items]" if self.width is None else "[items, values]"
            raise BadRequestError(f"input {self.name!r} has the shape {list(sizes)}; send it as {shape}")
        values = self._values(tensor)
        if not in_rows or len(sizes) == 1:
            return values
        width = sizes[1]
        return [values[begin : begin + width] for begin in range(0, len(values), max(1, width))]

    def _values(self, tensor: Tensor) -> list[Any]:
        if tensor.datatype != BYTES:
            return list(tensor.values)
        if not self.is_json:
            return [as_text(value) for value in tensor.values]
        return [_document(self.name, value) for value in tensor.values]


@dataclass(frozen=True, kw_only=True)
class InputForm:
    """All input tensors of an app."""

    columns: Sequence[Column]
    field: str
    """Name of the request's list of items: texts or instances."""
    is_object: bool
    """Whether an item has a field for each column; else it is the one column's value."""
    max_items: int
    """In one request."""

    def items(self, tensors: Sequence[Tensor]) -> list[Any]:
        """The items that these tensors hold.

        Raises:
            BadRequestError: one is absent, unknown, there twice, or of another length.
        """
        given = {tensor.name: tensor for tensor in tensors}
        known = {column.name: column for column in self.columns}
        odd = sorted(given.keys() - known.keys())
        absent = sorted(name for name, column in known.items() if column.is_needed and name not in given)
        if odd or absent or len(given) < len(tensors):
            raise BadRequestError(
                f"this model's inputs are {', '.join(sorted(known))}; "
                + (f"{odd[0][:80]!r} is none" if odd else f"{absent[0]!r} is absent" if absent else "one came twice")
            )
        rows = {name: known[name].rows(tensor) for name, tensor in given.items()}
        counts = {len(values) for values in rows.values()}
        if len(counts) != 1:
            raise BadRequestError(f"the inputs have {sorted(counts)} items; each has the same number of them")
        if not 1 <= max(counts) <= self.max_items:
            raise BadRequestError(f"{max(counts)} items; a request holds 1 to {self.max_items} of them")
        if not self.is_object:
            return next(iter(rows.values()))
        return [dict(zip(rows, values, strict=True)) for values in zip(*rows.values(), strict=True)]


def input_form(inputs: Inputs) -> InputForm:
    """The input tensors of an app."""
    if not isinstance(inputs, Instances):
        text = Column(name="text", datatype=BYTES)
        return InputForm(columns=[text], field="texts", is_object=False, max_items=MAX_TEXTS)
    schema = _schema_of(inputs.schema)
    found = _resolved(schema, schema)
    fields = found.get("properties") if found.get("type") == "object" else None
    needed = set(found.get("required", ()))
    columns = [_column(name, field, schema, is_needed=name in needed) for name, field in (fields or {}).items()]
    return InputForm(
        columns=columns or [_column("instance", found, schema)],
        field="instances",
        is_object=bool(columns),
        max_items=inputs.max_items,
    )


def schema_column(kind: Any) -> Column:
    """The column that values of this type would be."""
    schema = _schema_of(kind)
    return _column("", schema, schema)


def _schema_of(kind: Any) -> Mapping[str, Any]:
    try:
        return TypeAdapter(kind).json_schema()
    except PydanticUserError:  # nothing that JSON's schema has a word for
        return {}


def _resolved(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """The definition that a reference names; one level, as pydantic writes them."""
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    found: Mapping[str, Any] = root.get("$defs", {}).get(name, {}) if name else schema
    return found


def _column(name: str, schema: Mapping[str, Any], root: Mapping[str, Any], *, is_needed: bool = True) -> Column:
    schema = _resolved(schema, root)
    scalar = _SCALARS.get(str(schema.get("type")))
    if scalar is not None:
        return Column(name=name, datatype=scalar, is_needed=is_needed)
    row = _row(schema, root) if schema.get("type") == "array" else None
    if row is not None:
        return Column(name=name, datatype=row[0], width=row[1], is_needed=is_needed)
    return Column(name=name, datatype=BYTES, is_json=True, is_needed=is_needed)


def _row(schema: Mapping[str, Any], root: Mapping[str, Any]) -> tuple[str, int] | None:
    """Datatype and width of an array of values of one kind; None for any other."""
    parts = [_resolved(part, root) for part in schema.get("prefixItems", ())]
    each = _resolved(schema["items"], root) if isinstance(schema.get("items"), Mapping) else None
    kinds = {_SCALARS.get(str(part.get("type"))) for part in [*parts, *([each] if each is not None else [])]}
    kinds = {"FP64"} if kinds == {"FP64", "INT64"} else kinds
    if len(kinds) != 1 or None in kinds:
        return None
    width = schema.get("maxItems", -1) if schema.get("maxItems") == schema.get("minItems") else -1
    return str(kinds.pop()), int(width) if width is not None and 0 < width < _ANY else -1


def _document(name: str, value: str | bytes) -> Any:
    try:
        return json.loads(as_octets(value) if isinstance(value, bytes) else value)
    except (ValueError, RecursionError) as error:
        raise BadRequestError(f"input {name!r}: an element is no JSON document: {str(error)[:120]}") from None
