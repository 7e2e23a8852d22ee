"""Tensors as the Open Inference Protocol has them: named, typed, of a shape, as JSON or as bytes.

The datatypes and their layout in bytes are those of the protocol and of its extension for binary tensor data: little
endian, row major, no padding; an element of BYTES is its length in four bytes and then itself.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from failsoft.errors import BadRequestError

MAX_DIMENSIONS = 8
"""Of one shape; more than any model has, and few enough to be printed in a refusal."""
BYTES = "BYTES"
FLOATS: Mapping[str, str] = {"FP16": "<f2", "FP32": "<f4", "FP64": "<f8"}
INTEGERS: Mapping[str, str] = {
    name: f"<{'u' if name.startswith('U') else 'i'}{int(name.removeprefix('U').removeprefix('INT')) // 8}"
    for name in ("INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64")
}
LAYOUT: Mapping[str, str] = {"BOOL": "?", **INTEGERS, **FLOATS}
"""numpy's name for each datatype of a fixed size."""
_LARGEST = 1 << 1023
"""An integer of JSON beyond it is no float."""
_LARGEST_SIZE = 1 << 63
_LENGTH = struct.Struct("<I")

Parameters = Mapping[str, bool | int | float | str]


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """Values in row-major order; of BYTES they are ``str`` where JSON brought them, else ``bytes``."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    values: Sequence[Any]


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """An output that a caller asks for."""

    name: str
    binary: bool | None = None
    """As bytes after the JSON; None: as the request says for all outputs."""


@dataclass(frozen=True, kw_only=True)
class InferRequest:
    """What is to be inferred, however it came."""

    inputs: Sequence[Tensor]
    request_id: str = ""
    """Empty: the caller named none."""
    parameters: Parameters = field(default_factory=dict)
    wanted: Sequence[Wanted] = ()
    """Empty: all outputs."""
    binary: bool = False
    """Outputs of which nothing else is said go as bytes."""


@dataclass(frozen=True, kw_only=True)
class InferResponse:
    """What came of it."""

    model: str
    version: str
    """The release that answered all items; empty when none did, or several."""
    request_id: str
    outputs: Sequence[Tensor]
    parameters: Parameters
    headers: Mapping[str, str] = field(default_factory=dict)
    """Who answered and why, for proxies and logs that don't read bodies."""


def element_count(name: str, datatype: str, shape: Sequence[int]) -> int:
    """How many elements a tensor of this shape has.

    Raises:
        BadRequestError: the datatype is unknown, or the shape is none.
    """
    if datatype != BYTES and datatype not in LAYOUT:
        raise BadRequestError(f"input {name!r}: datatype {datatype[:20]!r} is not read here; use one of {_known()}")
    if not 1 <= len(shape) <= MAX_DIMENSIONS or any(not 0 <= size < _LARGEST_SIZE for size in shape):
        raise BadRequestError(f"input {name!r}: a shape is 1 to {MAX_DIMENSIONS} sizes of 0 or more, below 2^63")
    return math.prod(shape)


def from_values(name: str, datatype: str, shape: Sequence[int], data: Any) -> Tensor:
    """A tensor whose values came as such, flat or nested: in JSON, or in a message.

    Raises:
        BadRequestError: there are more or fewer values than the shape has, or one is no value of the datatype.
    """
    count = element_count(name, datatype, shape)
    values = list(_flat(name, data, count))
    if len(values) != count:
        raise BadRequestError(f"input {name!r}: its shape has {count} elements, its data {len(values)}")
    fits = _fits(datatype)
    for value in values:
        if not fits(value):
            raise BadRequestError(f"input {name!r}: {type(value).__name__} is given where a {datatype} is due")
    return Tensor(name=name, datatype=datatype, shape=tuple(shape), values=values)


def from_bytes(name: str, datatype: str, shape: Sequence[int], raw: bytes | memoryview) -> Tensor:
    """A tensor whose values came as bytes.

    Raises:
        BadRequestError: they are not as many as the shape says.
    """
    count = element_count(name, datatype, shape)
    values = _texts_in(name, raw, count) if datatype == BYTES else _numbers_in(name, datatype, raw, count)
    return Tensor(name=name, datatype=datatype, shape=tuple(shape), values=values)


def as_bytes(tensor: Tensor) -> bytes:
    """The values in the layout of the binary extension; None is NaN in a tensor of floats."""
    if tensor.datatype == BYTES:
        return b"".join(_LENGTH.pack(len(raw)) + raw for raw in map(as_octets, tensor.values))
    given = [math.nan if value is None else value for value in tensor.values]
    return np.asarray(given, dtype=LAYOUT[tensor.datatype]).tobytes()


def as_octets(value: str | bytes) -> bytes:
    """One element of BYTES; half characters were replaced before, where the answer was made."""
    return value if isinstance(value, bytes) else value.encode("utf-8", "replace")


def as_text(value: str | bytes) -> str:
    """One element of BYTES as a text; what is no UTF-8 becomes U+FFFD, which the sanitizer sees and counts."""
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


def _known() -> str:
    return ", ".join([*LAYOUT, BYTES])


def _flat(name: str, data: Any, count: int) -> Iterator[Any]:
    """At most one value more than the shape has, whatever the nesting."""
    if isinstance(data, list) and list not in set(map(type, data)):  # the ordinary case
        yield from data[: count + 1]
        return
    pending, given = [iter(data if isinstance(data, list) else [data])], 0
    while pending and given <= count:
        value = next(pending[-1], pending)
        if value is pending:
            pending.pop()
        elif isinstance(value, list):
            if len(pending) > MAX_DIMENSIONS:
                raise BadRequestError(f"input {name!r}: its data are nested deeper than {MAX_DIMENSIONS}")
            pending.append(iter(value))
        else:
            given += 1
            yield value


def _fits(datatype: str) -> Callable[[Any], bool]:
    """Whether a value is one of the datatype; made once for all values, for a body may hold half a million of them."""
    if datatype == BYTES:
        return lambda value: isinstance(value, str | bytes)
    if datatype == "BOOL":
        return lambda value: type(value) is bool
    if datatype in FLOATS:
        return lambda value: type(value) is float or (type(value) is int and abs(value) <= _LARGEST)
    limits = np.iinfo(INTEGERS[datatype])
    low, high = int(limits.min), int(limits.max)
    return lambda value: type(value) is int and low <= value <= high


def _numbers_in(name: str, datatype: str, raw: bytes | memoryview, count: int) -> list[Any]:
    layout = np.dtype(LAYOUT[datatype])
    if len(raw) != count * layout.itemsize:
        raise BadRequestError(
            f"input {name!r}: {count} elements of {datatype} are {count * layout.itemsize} bytes, {len(raw)} came"
        )
    found: list[Any] = np.frombuffer(raw, dtype=layout).tolist()
    return found


def _texts_in(name: str, raw: bytes | memoryview, count: int) -> list[bytes]:
    found: list[bytes] = []
    place = 0
    while place < len(raw) and len(found) <= count:
        begin = place + _LENGTH.size
        size = _LENGTH.unpack_from(raw, place)[0] if begin <= len(raw) else len(raw)
        place = begin + size
        if place > len(raw):
            raise BadRequestError(f"input {name!r}: element {len(found)} of BYTES goes beyond its {len(raw)} bytes")
        found.append(bytes(raw[begin:place]))
    if len(found) != count:
        raise BadRequestError(f"input {name!r}: its shape has {count} elements, its bytes {len(found)} or more")
    return found
