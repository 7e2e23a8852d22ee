"""Rectangles of a tensor's indices, and which pieces that lie in files cover a wanted one. Pure: moves no number."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from failsoft.errors import DamagedArtifactError


@dataclass(frozen=True, kw_only=True)
class Box:
    """Indices from ``offset`` on, ``size`` of them in each dimension; of a number without dimensions both are empty."""

    offset: tuple[int, ...]
    size: tuple[int, ...]

    @classmethod
    def whole(cls, shape: Iterable[int]) -> Box:
        """All of a tensor of this shape."""
        size = tuple(shape)
        return cls(offset=(0,) * len(size), size=size)

    @property
    def numel(self) -> int:
        """Numbers in it."""
        return math.prod(self.size)

    def within(self, shape: Sequence[int]) -> bool:
        """Whether a tensor of this shape has all of these indices."""
        ends = (at + size for at, size in zip(self.offset, self.size, strict=True))
        return len(self.size) == len(shape) and all(end <= most for end, most in zip(ends, shape, strict=True))

    def overlap(self, other: Box) -> Box:
        """What both hold; of size 0 somewhere when that is nothing."""
        spans = list(zip(self.offset, self.size, other.offset, other.size, strict=True))
        begins = tuple(max(left, right) for left, _, right, _ in spans)
        ends = (min(left + size, right + extent) for left, size, right, extent in spans)
        return Box(offset=begins, size=tuple(max(0, end - at) for end, at in zip(ends, begins, strict=True)))

    def seen_from(self, origin: Sequence[int]) -> tuple[slice, ...]:
        """As slices of a tensor that begins at ``origin``."""
        pairs = zip(self.offset, self.size, origin, strict=True)
        return tuple(slice(at - start, at - start + size) for at, size, start in pairs)


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A box of a tensor that lies in a file."""

    file: int
    """Number of the file."""
    box: Box


@dataclass(frozen=True, kw_only=True)
class Read:
    """One slice to read."""

    piece: Piece
    box: Box
    """Of the tensor: what is to be read of the piece."""

    @property
    def source(self) -> tuple[slice, ...]:
        """Where it lies in the piece."""
        return self.box.seen_from(self.piece.box.offset)

    @property
    def whole(self) -> bool:
        """It is all of its piece."""
        return self.box == self.piece.box


def reads_for(wanted: Box, pieces: Sequence[Piece], *, name: str) -> list[Read]:
    """Which slices of which pieces make up the wanted box; what is not needed is not read.

    Args:
        wanted: of a tensor.
        pieces: of the same tensor; they must not overlap, see :func:`refuse_gaps`.
        name: of the tensor, for the message.

    Raises:
        DamagedArtifactError: the pieces leave a gap in what is wanted.
    """
    overlaps = [(piece, wanted.overlap(piece.box)) for piece in pieces]
    reads = [Read(piece=piece, box=box) for piece, box in overlaps if box.numel]
    found = sum(read.box.numel for read in reads)
    if found != wanted.numel:
        raise DamagedArtifactError(
            f"of {name}, {found} of the {wanted.numel} numbers wanted (from {wanted.offset}, {wanted.size}) are in the "
            "shards; go on from the checkpoint before it (failsoft ckpt ls)"
        )
    return reads


def refuse_gaps(shape: Sequence[int], pieces: Sequence[Piece], *, name: str) -> None:
    """Refuse pieces that are not exactly the tensor: each number once.

    Raises:
        DamagedArtifactError: naming the tensor and what is wrong.
    """
    outside = [piece for piece in pieces if not piece.box.within(shape)]
    twice = _overlaps([piece.box for piece in pieces if piece.box.numel])
    held, whole = sum(piece.box.numel for piece in pieces), math.prod(shape)
    if outside or twice or held != whole:
        raise DamagedArtifactError(
            f"the shards hold {held} of {whole} numbers of {name}, {twice} pairs of pieces overlap and "
            f"{len(outside)} lie outside of its shape {tuple(shape)}"
        )


def _overlaps(boxes: Sequence[Box]) -> int:
    """Pairs that share a number. Along the dimension with the most cuts, so that few are compared with each other.

    All pairs would take minutes: 500 ranks hold 500 pieces each of a thousand tensors.
    """
    dims = len(boxes[0].offset) if boxes else 0
    axis = max(range(dims), key=lambda dim: len({box.offset[dim] for box in boxes}), default=None)
    if axis is None:
        return math.comb(len(boxes), 2)
    found, reaching = 0, list[Box]()
    for box in sorted(boxes, key=lambda box: box.offset[axis]):
        reaching = [other for other in reaching if other.offset[axis] + other.size[axis] > box.offset[axis]]
        found += sum(1 for other in reaching if other.overlap(box).numel)
        reaching.append(box)
    return found
