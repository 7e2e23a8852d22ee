"""The safetensors layout, without torch: eight bytes of length, a JSON header, then the tensors' bytes end to end.

Described at https://github.com/huggingface/safetensors#format. Written so that every tensor begins at a multiple of
its element's size, which lets a writer copy tensors straight to their places in memory.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from failsoft.errors import ConfigError, DamagedArtifactError

_MAX_HEADER_BYTES = 100_000_000  # the limit of the safetensors library
ELEMENT_BYTES: Mapping[str, int] = {
    "C64": 8,
    "F64": 8,
    "I64": 8,
    "U64": 8,
    "F32": 4,
    "I32": 4,
    "U32": 4,
    "F16": 2,
    "BF16": 2,
    "I16": 2,
    "U16": 2,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "I8": 1,
    "U8": 1,
    "BOOL": 1,
}
"""Sizes of the kinds of numbers, by their names in the header."""
_NUMPY = {"C64": "<c8", "F64": "<f8", "F32": "<f4", "F16": "<f2", "BOOL": "?"} | {
    f"{sign.upper()}{size * 8}": f"<{sign}{size}" for sign in "iu" for size in (1, 2, 4, 8)
}


@dataclass(frozen=True, kw_only=True)
class TensorSpec:
    """One tensor's kind of numbers and shape."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes of its numbers."""
        return math.prod(self.shape) * ELEMENT_BYTES[self.dtype]


@dataclass(frozen=True, kw_only=True)
class Stamp:
    """The moment that a part of a checkpoint is of; parts of one checkpoint bear the same."""

    position: int
    step: int

    def to_header(self) -> bytes:
        """How a tensor file says it, as the first entry of its header: always the same number of bytes."""
        return f'"__metadata__":{{"position":"{self.position:016d}","step":"{self.step:016d}"}}'.encode()


_NO_MOMENT = Stamp(position=0, step=0).to_header()
STAMP_PLACE = slice(9, 9 + len(_NO_MOMENT))
"""Where the stamp lies in a tensor file: after the length and the opening brace."""
_STAMP = re.compile(rb'"__metadata__":\{"position":"(\d{16})","step":"(\d{16})"\}')


@dataclass(frozen=True, kw_only=True)
class TensorLayout:
    """Where everything lies in the file."""

    header: bytes
    """The length and the JSON, padded to a multiple of eight; its stamp is still of position and step 0."""
    begins: Mapping[str, int]
    """Offset of each tensor from the start of the file."""
    specs: Mapping[str, TensorSpec]
    total_bytes: int


def lay_out(specs: Mapping[str, TensorSpec]) -> TensorLayout:
    """A file for these tensors: larger elements first, then by name.

    Raises:
        ConfigError: a kind of numbers that the format has no name for.
    """
    unknown = sorted({spec.dtype for spec in specs.values()} - ELEMENT_BYTES.keys())
    if unknown:
        raise ConfigError(f"tensors of {', '.join(unknown)} can't be saved; there are {', '.join(ELEMENT_BYTES)}")
    names = sorted(specs, key=lambda name: (-ELEMENT_BYTES[specs[name].dtype], name))
    entries: dict[str, Any] = {}
    end = 0
    for name in names:
        begin, end = end, end + specs[name].size_bytes
        entries[name] = {"dtype": specs[name].dtype, "shape": list(specs[name].shape), "data_offsets": [begin, end]}
    rest = json.dumps(entries, separators=(",", ":")).encode()[1:]
    text = b"{" + _NO_MOMENT + (b"," if entries else b"") + rest
    text += b" " * (-len(text) % 8)
    header = len(text).to_bytes(8, "little") + text
    begins = {name: len(header) + int(entries[name]["data_offsets"][0]) for name in names}
    return TensorLayout(header=header, begins=begins, specs=dict(specs), total_bytes=len(header) + end)


class TensorFile:
    """Reads tensors as numpy arrays, one at a time; bfloat16 becomes float32, other kinds unknown to numpy raw bytes.

    Raises:
        DamagedArtifactError: the header is torn or points outside the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as content:
                size = int.from_bytes(content.read(8), "little")
                if size > _MAX_HEADER_BYTES:
                    raise ValueError(f"a header of {size} bytes")
                entries: dict[str, Any] = json.loads(content.read(size))
            entries.pop("__metadata__", None)  # the stamp, and what other programs say
            self.specs: Mapping[str, TensorSpec] = {name: _spec(entry) for name, entry in sorted(entries.items())}
            self._begins = {name: 8 + size + int(entry["data_offsets"][0]) for name, entry in entries.items()}
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedArtifactError(f"{path} is no tensor file: {error.__class__.__name__}: {error}") from error

    def read(self, name: str) -> NDArray[Any]:
        """One tensor.

        Raises:
            DamagedArtifactError: the file ends before the tensor does.
        """
        spec = self.specs[name]
        kind = np.dtype(_NUMPY.get(spec.dtype, f"<u{ELEMENT_BYTES[spec.dtype]}"))
        with self.path.open("rb") as content:
            content.seek(self._begins[name])
            raw = content.read(spec.size_bytes)
        if len(raw) != spec.size_bytes:
            raise DamagedArtifactError(f"{self.path} ends within {name}")
        numbers = np.frombuffer(raw, dtype=kind).reshape(spec.shape)
        return _widened(numbers) if spec.dtype == "BF16" else numbers

    def refuse_gaps(self) -> None:
        """There are none: it holds whole tensors."""

    def __iter__(self) -> Iterator[str]:
        return iter(self.specs)


def stamp_in(content: bytes) -> Stamp | None:
    """What the first bytes of a tensor file (so many as its stamp needs) say of its moment.

    None where they say nothing: in a file of an older form, or of another program.
    """
    found = _STAMP.fullmatch(content[STAMP_PLACE])
    return None if found is None else Stamp(position=int(found[1]), step=int(found[2]))


def _widened(halves: NDArray[Any]) -> NDArray[np.float32]:
    """A bfloat16 is the upper half of a float32."""
    return (halves.astype(np.uint32) << 16).view(np.float32)


def _spec(entry: Mapping[str, Any]) -> TensorSpec:
    shape: Sequence[Any] = entry["shape"]
    return TensorSpec(dtype=str(entry["dtype"]), shape=tuple(int(size) for size in shape))
