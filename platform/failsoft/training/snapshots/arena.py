"""One buffer for a rank's part of a state, and the copy into it that looks at each number while it is in the cache.

In host RAM a chunk is checked and then copied by memcpy from the cache, so the check adds a third of the copy's time,
not a second trip through memory. On an accelerator the check runs there, before the copies, which are all under way on
the current stream before they are waited for once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from failsoft.training.finite import (
    CHUNK_BYTES,
    ROW,
    Bytes,
    Probe,
    all_finite,
    finite_on_devices,
    flat,
    probe_of,
    raw_bytes,
    squared,
    squares_finite,
)
from failsoft.training.snapshots.room import MakeBuffer, own_buffer
from failsoft.training.snapshots.snapshot_layout import Slice, Slot, pinned, placed, taken_bytes

_ALONE_BYTES = 128 * 1024
"""Slices from this size on are copied and checked chunk by chunk; smaller ones are copied whole, checked together."""


@dataclass(kw_only=True)
class _Bundle:
    """Small whole parts of one dtype, side by side."""

    dtype: torch.dtype
    finite: Probe
    start: int
    stop: int
    names: list[str] = field(default_factory=list)
    places: list[Tensor] = field(default_factory=list)
    """For each of them, in its own shape."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Long:
    """A slice that is copied chunk by chunk."""

    name: str
    finite: Probe
    begin: int
    """First byte in its part."""
    rows: list[NDArray[Any]]
    """Where whole chunks of wide floats go; numbers in rows."""
    rest: list[Bytes]
    """Where the chunks after them go."""


class Arena:
    """Memory for slices, made once and filled again and again.

    Args:
        slices: what it holds, in order.
        buffer: makes its memory; see :class:`failsoft.training.snapshots.room.Room`.

    Raises:
        RuntimeError, MemoryError: there is no memory for it.
    """

    def __init__(self, slices: Sequence[Slice], *, buffer: MakeBuffer = own_buffer) -> None:
        self.slots, total = placed(slices)
        self.pinned = pinned(slices)
        self._memory = buffer(total, pinned=self.pinned)  # zeroes, so that the gaps between slices count as healthy
        self._raw = raw_bytes(self._memory)
        here = [slot for slot in self.slots if slot.slice.part.device.type == "cpu"]
        self._away = [slot for slot in self.slots if slot.slice.part.device.type != "cpu"]
        self._long = [self._chunked(slot) for slot in here if not _is_small(slot)]
        self._bundles = self._bundled([slot for slot in here if _is_small(slot)])

    @property
    def taken_bytes(self) -> int:
        """RAM taken."""
        return taken_bytes(self._memory.nbytes, pinned=self.pinned)

    @property
    def address(self) -> int:
        """Of its memory, to tell arenas apart."""
        return self._memory.data_ptr()

    def numbers(self, slot: Slot) -> Tensor:
        """The kept numbers of a slot, one-dimensional; a view."""
        return self._memory[slot.offset : slot.offset + slot.slice.nbytes].view(slot.slice.part.dtype)

    @torch.no_grad()
    def fill(self, tensors: Mapping[str, Tensor]) -> bool:
        """Copy a state's slices.

        Args:
            tensors: by name, of the forms that the slices were cut from.

        Returns:
            Whether all numbers are finite. When not, the copy may have been left off half-way.
        """
        on_devices = [tensors[name] for name in dict.fromkeys(slot.slice.part.name for slot in self._away)]
        if not finite_on_devices(on_devices):
            return False
        for slot in self._away:
            self._fetch(slot, tensors[slot.slice.part.name])
        with np.errstate(over="ignore", invalid="ignore"):  # the checks expect both
            healthy = all(self._copy_bundle(bundle, tensors) for bundle in self._bundles) and all(
                _copy_chunks(long, raw_bytes(tensors[long.name])) for long in self._long
            )
        self._wait()
        return healthy

    def all_finite(self) -> bool:
        """Whether what it holds is; all that was ever filled in whole is."""
        return all(all_finite(self.numbers(slot)) for slot in self.slots)

    def _fetch(self, slot: Slot, tensor: Tensor) -> None:
        piece = slot.slice
        self.numbers(slot).copy_(flat(tensor)[piece.start : piece.stop], non_blocking=self.pinned)

    def _wait(self) -> None:
        for device in {slot.slice.part.device for slot in self._away if slot.slice.part.device.type == "cuda"}:
            torch.cuda.current_stream(device).synchronize()

    def _copy_bundle(self, bundle: _Bundle, tensors: Mapping[str, Tensor]) -> bool:
        torch._foreach_copy_(bundle.places, [tensors[name] for name in bundle.names])
        return bundle.finite(self._raw[bundle.start : bundle.stop])

    def _chunked(self, slot: Slot) -> _Long:
        piece, dtype = slot.slice, slot.slice.part.dtype
        target, wide = self._raw[slot.offset : slot.offset + piece.nbytes], squared(dtype)
        chunks = [target[at : at + CHUNK_BYTES] for at in range(0, piece.nbytes, CHUNK_BYTES)]
        whole = [chunk for chunk in chunks if len(chunk) == CHUNK_BYTES]
        rows = [] if wide is None else [chunk.view(wide).reshape(-1, ROW) for chunk in whole]
        return _Long(
            name=piece.part.name,
            finite=probe_of(dtype),
            begin=piece.start * dtype.itemsize,
            rows=rows,
            rest=chunks[len(rows) :],
        )

    def _bundled(self, slots: Sequence[Slot]) -> list[_Bundle]:
        """Neighbours of one dtype, until they fill a chunk."""
        bundles: list[_Bundle] = []
        for slot in slots:
            part, stop = slot.slice.part, slot.offset + slot.slice.nbytes
            last = bundles[-1] if bundles else None
            if last is None or last.dtype != part.dtype or stop - last.start > CHUNK_BYTES:
                last = _Bundle(dtype=part.dtype, finite=probe_of(part.dtype), start=slot.offset, stop=stop)
                bundles.append(last)
            last.names.append(part.name)
            last.places.append(part.shaped(self.numbers(slot)))
            last.stop = stop
        return bundles


def _copy_chunks(long: _Long, source: Bytes) -> bool:
    at, finite = long.begin, long.finite
    if long.rows:
        stop = at + CHUNK_BYTES * len(long.rows)
        if not _copy_rows(long, source[at:stop].view(long.rows[0].dtype).reshape(-1, ROW)):
            return False
        at = stop
    for target in long.rest:
        chunk = source[at : at + target.size]
        if not finite(chunk):
            return False
        np.copyto(target, chunk)
        at += CHUNK_BYTES
    return True


def _copy_rows(long: _Long, source: NDArray[Any]) -> bool:
    """The same with nothing but what has to be done for each chunk: it is done a thousand times for 500 MB."""
    at = 0
    for target in long.rows:
        chunk = source[at : at + len(target)]
        if not squares_finite(chunk) and not long.finite(chunk.reshape(-1).view(np.uint8)):
            return False
        np.copyto(target, chunk)
        at += len(target)
    return True


def _is_small(slot: Slot) -> bool:
    return slot.slice.nbytes < _ALONE_BYTES and slot.slice.whole


def finite_slices(slices: Sequence[Slice], tensors: Mapping[str, Tensor]) -> bool:
    """Whether slices that are not copied here are all finite."""
    here = [piece for piece in slices if piece.part.device.type == "cpu"]
    away = dict.fromkeys(piece.part.name for piece in slices if piece.part.device.type != "cpu")
    return finite_on_devices([tensors[name] for name in away]) and all(
        all_finite(flat(tensors[piece.part.name])[piece.start : piece.stop]) for piece in here
    )
