"""Which numbers of a state each rank's snapshot keeps, and where they lie in its buffer. Pure: moves no number.

Parts are sorted so that equal dtypes lie side by side (one health check covers many small parts) and nothing but the
start of a large part needs padding. Both orders and cuts follow from names and shapes alone, so all ranks agree.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from failsoft.errors import ConfigError
from failsoft.training.finite import dense_view
from failsoft.training.snapshots.snapshot_place import SnapshotPlace

LARGE_BYTES = 4096
"""Parts from this size on start at a cache line."""
_LINE_BYTES = 64


@dataclass(frozen=True, kw_only=True)
class Part:
    """The form of one tensor."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dense: bool
    """Its memory has neither gaps nor repeats, so it is kept in the order of memory; else in the order of indices."""
    device: torch.device
    alike: bool
    """All ranks hold the same numbers."""

    @property
    def numel(self) -> int:
        """Numbers in it."""
        return torch.Size(self.shape).numel()

    @property
    def nbytes(self) -> int:
        """Bytes of its numbers."""
        return self.numel * self.dtype.itemsize

    def shaped(self, numbers: Tensor) -> Tensor:
        """All its numbers, one-dimensional as they are kept, in its shape; a view."""
        return numbers.as_strided(self.shape, self.stride) if self.dense else numbers.view(self.shape)


@dataclass(frozen=True, kw_only=True)
class Slice:
    """Numbers ``start`` to ``stop`` of a part, as they are kept."""

    part: Part
    start: int
    stop: int

    @property
    def nbytes(self) -> int:
        """Bytes of its numbers."""
        return (self.stop - self.start) * self.part.dtype.itemsize

    @property
    def whole(self) -> bool:
        """It is all of its part."""
        return self.stop - self.start == self.part.numel


@dataclass(frozen=True, kw_only=True)
class Slot:
    """A slice and the byte of the buffer at which it starts."""

    slice: Slice
    offset: int


@dataclass(frozen=True, kw_only=True)
class Division:
    """Who keeps what of a state."""

    parts: tuple[Part, ...]
    own: tuple[Slice, ...]
    """Kept by each rank of its own state."""
    shares: tuple[tuple[Slice, ...], ...]
    """By rank; together they hold each number that is alike on all ranks exactly once."""

    def kept_by(self, rank: int) -> tuple[Slice, ...]:
        """What this rank's buffer holds, in order."""
        return tuple(sorted(self.own + self.shares[rank], key=_order))

    def watched_by(self, rank: int) -> tuple[Slice, ...]:
        """What this rank holds live while another one keeps it: it is looked at, but not copied."""
        return tuple(piece for other, share in enumerate(self.shares) if other != rank for piece in share)

    def digest(self) -> str:
        """The same on two ranks exactly when they divide alike: names, dtypes, shapes and orders of what is shared."""
        alike = [(part.name, str(part.dtype), part.shape, part.stride, part.dense) for part in self.parts if part.alike]
        return hashlib.blake2b(repr(alike).encode(), digest_size=16).hexdigest()


def parts_of(tensors: Mapping[str, Tensor], *, own: frozenset[str]) -> tuple[Part, ...]:
    """The forms of a state's tensors, in the order in which they are kept.

    Args:
        tensors: by name, detached.
        own: names of those that may differ between ranks.

    Raises:
        ConfigError: a tensor is no plain dense one, or can't be written back.
    """
    parts = [_part(name, tensor, alike=name not in own) for name, tensor in tensors.items()]
    return tuple(sorted(parts, key=_rank_of_part))


def divide(parts: Sequence[Part], place: SnapshotPlace, world: int) -> Division:
    """Say who keeps what.

    Args:
        parts: what :func:`parts_of` gave; the ``alike`` ones equal on all ranks.
        place: where the alike ones are kept.
        world: number of ranks.
    """
    if place is SnapshotPlace.EACH_RANK:
        return Division(parts=tuple(parts), own=_wholes(parts), shares=((),) * world)
    alike = [part for part in parts if part.alike]
    nobody: tuple[tuple[Slice, ...], ...] = ((),) * (world - 1)
    shares = (_wholes(alike), *nobody) if place is SnapshotPlace.RANK_ZERO else _split(alike, world)
    return Division(parts=tuple(parts), own=_wholes([part for part in parts if not part.alike]), shares=shares)


def placed(slices: Sequence[Slice]) -> tuple[tuple[Slot, ...], int]:
    """Slots for slices in this order, and the bytes that they take together."""
    slots, offset = [], 0
    for piece in slices:
        to = _LINE_BYTES if piece.nbytes >= LARGE_BYTES else piece.part.dtype.itemsize
        offset += -offset % to
        slots.append(Slot(slice=piece, offset=offset))
        offset += piece.nbytes
    return tuple(slots), offset


def pinned(slices: Sequence[Slice]) -> bool:
    """Whether a buffer for these is pinned: some of them come from CUDA."""
    return any(piece.part.device.type == "cuda" for piece in slices)


def taken_bytes(buffer_bytes: int, *, pinned: bool) -> int:
    """RAM that a buffer takes: torch's allocator of pinned memory rounds up to a power of two."""
    return 1 << (buffer_bytes - 1).bit_length() if pinned and buffer_bytes else buffer_bytes


def _part(name: str, tensor: Tensor, *, alike: bool) -> Part:
    if type(tensor) is not Tensor or tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_meta:
        raise ConfigError(
            f"{name} is a {type(tensor).__name__} of layout {tensor.layout} on {tensor.device}; RAM snapshots keep "
            "dense tensors and this rank's shards of them (FSDP2): keep others by torch.distributed.checkpoint instead"
        )
    if any(step == 0 and size > 1 for size, step in zip(tensor.shape, tensor.stride(), strict=True)):
        raise ConfigError(
            f"{name} is expanded: several of its numbers share one place in memory, so it can't be written back; make "
            "it .contiguous() where it is registered"
        )
    return Part(
        name=name,
        dtype=tensor.dtype,
        shape=tuple(tensor.shape),
        stride=tuple(tensor.stride()),
        dense=dense_view(tensor) is not None,
        device=tensor.device,
        alike=alike,
    )


def _rank_of_part(part: Part) -> tuple[int, str, bool]:
    return (-part.dtype.itemsize, str(part.dtype), part.nbytes < LARGE_BYTES)


def _order(piece: Slice) -> tuple[int, str, bool]:
    return (-piece.part.dtype.itemsize, str(piece.part.dtype), piece.nbytes < LARGE_BYTES)


def _wholes(parts: Sequence[Part]) -> tuple[Slice, ...]:
    return tuple(Slice(part=part, start=0, stop=part.numel) for part in parts if part.numel)


def _split(parts: Sequence[Part], world: int) -> tuple[tuple[Slice, ...], ...]:
    """Cut the bytes of all parts, laid end to end, into ``world`` equal runs; a cut moves down to a whole number."""
    total = sum(part.nbytes for part in parts)
    shares: list[list[Slice]] = [[] for _ in range(world)]
    rank = begin = 0
    for part in parts:
        start = 0
        while start < part.numel:
            cut = total * (rank + 1) // world
            stop = min(part.numel, (cut - begin) // part.dtype.itemsize)
            if stop > start:
                shares[rank].append(Slice(part=part, start=start, stop=stop))
                start = stop
            rank += start < part.numel
        begin += part.nbytes
    return tuple(tuple(share) for share in shares)
