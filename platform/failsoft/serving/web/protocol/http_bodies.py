"""Bodies of the protocol over HTTP: JSON, and after it the bytes of those tensors that came or go as such."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from failsoft.errors import BadRequestError
from failsoft.serving.web.protocol.tensors import (
    BYTES,
    FLOATS,
    MAX_DIMENSIONS,
    InferRequest,
    InferResponse,
    Tensor,
    Wanted,
    as_bytes,
    as_text,
    from_bytes,
    from_values,
)

JSON_LENGTH = "Inference-Header-Content-Length"
"""Header that says how many bytes of a body are JSON; the rest are tensors."""
MAX_TENSORS = 128
"""Inputs, or outputs asked for, in one request."""
_NAMED = 80


def _as_parameters(given: Any) -> Any:
    """Refused at the first misfit: to list each of 1 MB of them held up all other callers for seconds."""
    if not isinstance(given, dict):
        raise ValueError("parameters are an object")
    for name, value in given.items():
        if not isinstance(value, bool | int | float | str):
            raise ValueError(f"{name[:_NAMED]!r} is no text, number or truth value")
    return given


_Given = Annotated[dict[str, Any], BeforeValidator(_as_parameters)]
_Shape = Annotated[list[int], Field(max_length=8 * MAX_DIMENSIONS)]
"""How many sizes are right is said where they are read; listing what is wrong with 1 MB of them takes seconds."""


class _Part(BaseModel):
    """What the protocol does not know is an extension's, and is passed over."""

    model_config = ConfigDict(extra="ignore", strict=True)

    name: str = Field(min_length=1, max_length=200)
    parameters: _Given = Field(default_factory=dict)


class _Input(_Part):
    datatype: str
    shape: _Shape
    data: Any = None


class _Body(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    id: str = ""
    parameters: _Given = Field(default_factory=dict)
    inputs: list[_Input] = Field(min_length=1, max_length=MAX_TENSORS)
    outputs: list[_Part] = Field(default_factory=list, max_length=MAX_TENSORS)


def read_body(body: bytes, json_length: str | None) -> InferRequest:
    """What a body asks.

    Args:
        body: whole; its size was bounded before it was read.
        json_length: value of the header ``Inference-Header-Content-Length``; None: all of it is JSON.

    Raises:
        BadRequestError: it is none of the protocol; says where.
    """
    size = _json_size(body, json_length)
    asked = _parsed(body[:size])
    tail = memoryview(body)[size:]
    inputs = list(_inputs(asked, tail))
    return InferRequest(
        inputs=inputs,
        request_id=asked.id,
        parameters=asked.parameters,
        wanted=[Wanted(name=part.name, binary=_flag(part, "binary_data")) for part in asked.outputs],
        binary=_flag(asked, "binary_data_output") is True,
    )


def write_body(response: InferResponse, request: InferRequest) -> tuple[bytes, int | None]:
    """The body of an answer, and how much of it is JSON; None: all of it."""
    own = {one.name: one.binary for one in request.wanted if one.binary is not None}
    parts: list[bytes] = []
    outputs = [_output(one, parts, binary=own.get(one.name, request.binary)) for one in response.outputs]
    said: dict[str, Any] = {"model_name": response.model}
    said |= {"model_version": response.version} if response.version else {}
    said |= {"id": response.request_id, "parameters": dict(response.parameters), "outputs": outputs}
    head = json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    return (head, None) if not parts else (head + b"".join(parts), len(head))


def _json_size(body: bytes, json_length: str | None) -> int:
    if json_length is None:
        return len(body)
    size = int(json_length[:20]) if json_length.isascii() and json_length.isdecimal() else -1
    if not 0 <= size <= len(body):
        raise BadRequestError(
            f"{JSON_LENGTH} is {json_length[:20]!r} and the body has {len(body)} bytes; it says how many are JSON"
        )
    return size


def _parsed(head: bytes) -> _Body:
    try:
        found = json.loads(head.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadRequestError(f"the body is no JSON: {str(error)[:200]}") from None
    try:
        return _Body.model_validate(found)
    except ValidationError as error:
        raise BadRequestError(in_one_line(error)) from None


def in_one_line(error: ValidationError) -> str:
    """What does not fit, and where, of the first few misfits; what was sent is not repeated."""
    found = error.errors(include_url=False, include_input=False, include_context=False)[:3]
    return "; ".join(f"{'.'.join(str(part)[:_NAMED] for part in one['loc'])}: {one['msg']}" for one in found)


def _inputs(asked: _Body, tail: memoryview) -> Iterator[Tensor]:
    place = 0
    for one in asked.inputs:
        size = one.parameters.get("binary_data_size")
        if size is None:
            yield from_values(one.name, one.datatype, one.shape, one.data)
            continue
        if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= len(tail) - place:
            raise BadRequestError(
                f"input {one.name!r}: binary_data_size is {str(size)[:20]}, and {len(tail) - place} bytes are left"
            )
        yield from_bytes(one.name, one.datatype, one.shape, tail[place : place + size])
        place += size
    if place != len(tail):
        raise BadRequestError(f"{len(tail) - place} bytes after the JSON belong to no input")


def _flag(part: _Part | _Body, name: str) -> bool | None:
    """True or false as the caller said; None: nothing."""
    given = part.parameters.get(name)
    return None if given is None else given is True


def _output(tensor: Tensor, parts: list[bytes], *, binary: bool) -> dict[str, Any]:
    said: dict[str, Any] = {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape)}
    if binary:
        parts.append(as_bytes(tensor))
        return said | {"parameters": {"binary_data_size": len(parts[-1])}}
    if tensor.datatype == BYTES:
        return said | {"data": [as_text(value) for value in tensor.values]}
    if tensor.datatype in FLOATS:  # JSON has no NaN: what is not known is null, of which numpy makes NaN
        return said | {"data": [_finite(value) for value in tensor.values]}
    return said | {"data": list(tensor.values)}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
