"""Whatever is wanted of a tensor, the slices that are read of its pieces are it, and no number more."""

from __future__ import annotations

import math
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.errors import DamagedArtifactError
from failsoft.training.boxes import Box, Piece, reads_for, refuse_gaps


def cuts(size: int, ranks: int) -> list[tuple[int, int]]:
    """As torch cuts a dimension: equal shares, rounded up, so that the last ones may be short or empty."""
    share = -(-size // ranks)
    return [(min(rank * share, size), max(0, min(share, size - rank * share))) for rank in range(ranks)]


@st.composite
def sharded(draw: st.DrawFn) -> tuple[tuple[int, ...], list[Piece]]:
    """A shape and its pieces over a mesh of one or two dimensions, which may cut the same dimension or two."""
    shape = tuple(draw(st.lists(st.integers(0, 7), min_size=1, max_size=3)))
    mesh = draw(st.lists(st.integers(1, 4), min_size=1, max_size=2))
    dims = draw(st.lists(st.integers(0, len(shape) - 1), min_size=len(mesh), max_size=len(mesh), unique=True)
                if len(shape) >= len(mesh) else st.just([0]))  # fmt: skip
    spans = [[(0, size)] for size in shape]
    for ranks, dim in zip(mesh, dims, strict=False):
        spans[dim] = cuts(shape[dim], ranks)
    boxes = [Box(offset=tuple(at for at, _ in each), size=tuple(size for _, size in each)) for each in product(*spans)]
    return shape, [Piece(file=file, box=box) for file, box in enumerate(boxes)]


@given(sharded(), st.data())
def test_what_is_read_is_what_is_wanted_and_nothing_else(
    made: tuple[tuple[int, ...], list[Piece]], data: st.DataObject
) -> None:
    shape, pieces = made
    whole = np.arange(math.prod(shape)).reshape(shape)
    files = {piece.file: whole[piece.box.seen_from((0,) * len(shape))] for piece in pieces}
    offset = tuple(data.draw(st.integers(0, size)) for size in shape)
    size = tuple(data.draw(st.integers(0, most - at)) for most, at in zip(shape, offset, strict=True))
    wanted = Box(offset=offset, size=size)
    reads = reads_for(wanted, pieces, name="w")
    found = np.full(size, -1)
    for read in reads:
        found[read.box.seen_from(offset)] = files[read.piece.file][read.source]
    assert np.array_equal(found, whole[wanted.seen_from((0,) * len(shape))])
    assert sum(read.box.numel for read in reads) == wanted.numel


@given(sharded())
def test_pieces_of_any_mesh_are_the_tensor_and_one_that_is_gone_is_missed(
    made: tuple[tuple[int, ...], list[Piece]],
) -> None:
    shape, pieces = made
    refuse_gaps(shape, pieces, name="w")
    for lost in (piece for piece in pieces if piece.box.numel):
        left = [piece for piece in pieces if piece is not lost]
        with pytest.raises(DamagedArtifactError, match="of w"):
            refuse_gaps(shape, left, name="w")
        with pytest.raises(DamagedArtifactError, match=r"of w, .* numbers wanted"):
            reads_for(lost.box, left, name="w")


def test_a_piece_that_is_there_twice_does_not_make_up_for_one_that_is_missing() -> None:
    twice = [Piece(file=0, box=Box(offset=(0,), size=(2,))), Piece(file=1, box=Box(offset=(0,), size=(2,)))]
    with pytest.raises(DamagedArtifactError, match="1 pairs of pieces overlap"):
        refuse_gaps((4,), twice, name="w")


@given(sharded(), st.data())
def test_each_pair_of_pieces_that_overlap_is_found_wherever_they_lie(
    made: tuple[tuple[int, ...], list[Piece]], data: st.DataObject
) -> None:
    shape, pieces = made
    full = [piece for piece in pieces if piece.box.numel]
    more = data.draw(st.lists(st.sampled_from(full), min_size=1, max_size=4)) if full else []
    grown = [Piece(file=9, box=data.draw(st.sampled_from([one.box, Box.whole(shape)]))) for one in more]
    every = data.draw(st.permutations([*pieces, *grown]))
    pairs = sum(1 for left, right in combinations(every, 2) if left.box.overlap(right.box).numel)
    if pairs:
        with pytest.raises(DamagedArtifactError, match=f", {pairs} pairs of pieces overlap"):
            refuse_gaps(shape, every, name="w")


def test_the_pieces_of_many_ranks_are_not_all_compared_with_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0
    overlap = Box.overlap

    def counted(self: Box, other: Box) -> Box:
        nonlocal compared
        compared += 1
        return overlap(self, other)

    monkeypatch.setattr(Box, "overlap", counted)
    for cut in (0, 1):
        boxes = (Box(offset=(at, 0)[:: 1 - 2 * cut], size=(1, 8)[:: 1 - 2 * cut]) for at in range(512))
        pieces = [Piece(file=file, box=box) for file, box in enumerate(boxes)]
        refuse_gaps((512, 8)[:: 1 - 2 * cut], pieces, name="w")
    assert compared < 2 * 512


def test_a_number_without_dimensions_is_one_piece() -> None:
    whole = Box.whole(())
    assert whole.numel == 1
    [read] = reads_for(whole, [Piece(file=0, box=whole)], name="step")
    assert (read.source, read.whole) == ((), True)
