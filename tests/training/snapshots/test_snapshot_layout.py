from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from failsoft.errors import ConfigError
from failsoft.training.snapshots.arena import Arena, finite_slices
from failsoft.training.snapshots.snapshot_layout import LARGE_BYTES, Division, divide, parts_of, placed
from failsoft.training.snapshots.snapshot_place import SnapshotPlace

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64, torch.uint8]
SHAPES = st.lists(st.integers(0, 40), max_size=3).map(tuple)


@st.composite
def states(draw: st.DrawFn) -> dict[str, Tensor]:
    """Named tensors of random kinds, shapes and memory orders."""
    forms = draw(st.lists(st.tuples(st.sampled_from(DTYPES), SHAPES, st.booleans()), max_size=12))
    tensors = {}
    for number, (dtype, shape, turned) in enumerate(forms):
        tensor = (torch.arange(torch.Size(shape).numel()) % 200).to(dtype).view(shape)
        tensors[f"t{number}"] = tensor.transpose(0, -1) if turned and shape else tensor
    return tensors


def division_of(tensors: dict[str, Tensor], place: SnapshotPlace, world: int, own: frozenset[str]) -> Division:
    return divide(parts_of(tensors, own=own), place, world)


@given(tensors=states(), world=st.integers(1, 9), place=st.sampled_from(SnapshotPlace))
def test_the_shares_hold_each_number_once_and_differ_by_less_than_one_number(
    tensors: dict[str, Tensor], world: int, place: SnapshotPlace
) -> None:
    division = division_of(tensors, place, world, frozenset({"t0", "t3"}))
    seen = {name: torch.zeros(tensor.numel(), dtype=torch.int64) for name, tensor in tensors.items()}
    for piece in (piece for share in division.shares for piece in share):
        assert 0 <= piece.start < piece.stop <= piece.part.numel
        seen[piece.part.name][piece.start : piece.stop] += 1
    for piece in division.own:
        assert piece.whole
        seen[piece.part.name] += 1
    assert all(bool((count == 1).all()) for count in seen.values())
    sizes = [sum(piece.nbytes for piece in share) for share in division.shares]
    if place is SnapshotPlace.SHARDED:
        assert max(sizes) - min(sizes) <= 16  # a complex number and a rounding
    else:
        assert sum(sizes) == sizes[0]


@given(tensors=states(), world=st.integers(1, 5), place=st.sampled_from(SnapshotPlace))
def test_slots_are_aligned_and_do_not_overlap(tensors: dict[str, Tensor], world: int, place: SnapshotPlace) -> None:
    division = division_of(tensors, place, world, frozenset({"t1"}))
    for rank in range(world):
        slots, total = placed(division.kept_by(rank))
        end = 0
        for slot in slots:
            assert slot.offset >= end
            assert slot.offset % (64 if slot.slice.nbytes >= LARGE_BYTES else slot.slice.part.dtype.itemsize) == 0
            end = slot.offset + slot.slice.nbytes
        assert end == total <= sum(slot.slice.nbytes for slot in slots) + 64 * len(slots)


@given(tensors=states(), world=st.integers(1, 5), place=st.sampled_from(SnapshotPlace))
def test_what_the_ranks_keep_is_together_the_whole_state_bit_for_bit(
    tensors: dict[str, Tensor], world: int, place: SnapshotPlace
) -> None:
    division = division_of(tensors, place, world, frozenset())
    back = {part.name: torch.empty(part.numel, dtype=part.dtype) for part in division.parts}
    for rank in range(world):
        arena = Arena(division.kept_by(rank))
        assert arena.fill(tensors)
        for slot in arena.slots:
            back[slot.slice.part.name][slot.slice.start : slot.slice.stop] = arena.numbers(slot)
    for part in division.parts:
        assert torch.equal(part.shaped(back[part.name]), tensors[part.name])


def test_ranks_divide_alike_exactly_when_what_they_share_has_the_same_form() -> None:
    tensors = {"a": torch.zeros(3), "own": torch.zeros(2)}
    digest = division_of(tensors, SnapshotPlace.SHARDED, 2, frozenset({"own"})).digest()
    longer = tensors | {"own": torch.zeros(5)}
    assert division_of(longer, SnapshotPlace.SHARDED, 2, frozenset({"own"})).digest() == digest
    for other in ({"a": torch.zeros(4)}, {"a": torch.zeros(3).double()}, {"b": torch.zeros(3)}):
        assert division_of(other, SnapshotPlace.SHARDED, 2, frozenset()).digest() != digest


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        (torch.zeros(3).to_sparse(), "torch.sparse_coo"),
        (torch.zeros(3, device="meta"), "on meta"),
        (torch.zeros(1).expand(3), "is expanded"),
        (torch.nn.UninitializedParameter(), "UninitializedParameter"),
    ],
    ids=["sparse", "meta", "expanded", "lazy"],
)
def test_what_could_not_be_written_back_is_refused_by_name(tensor: Tensor, words: str) -> None:
    with pytest.raises(ConfigError, match=f"model/x .*{words}"):
        parts_of({"model/x": tensor}, own=frozenset())


@given(
    dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16]),
    size=st.integers(1, 400_000),
    place=st.floats(0.0, 1.0, exclude_max=True),
    world=st.integers(1, 3),
)
def test_a_copy_of_large_numbers_is_healthy_and_one_ill_number_anywhere_is_not(
    dtype: torch.dtype, size: int, place: float, world: int
) -> None:
    tensors = {"a": torch.full((size,), 1e38, dtype=dtype), "b": torch.ones(9)}  # the sum of squares overflows
    shares = division_of(tensors, SnapshotPlace.SHARDED, world, frozenset()).shares
    arenas = [Arena(share) for share in shares]
    assert all(arena.fill(tensors) for arena in arenas)
    tensors["a"][int(place * size)] = torch.nan
    verdicts = [arena.fill(tensors) for arena in arenas]
    assert sorted(verdicts) == [False] + [True] * (world - 1)
    division = division_of(tensors, SnapshotPlace.SHARDED, world, frozenset())
    watched = [finite_slices(division.watched_by(rank), tensors) for rank in range(world)]
    assert watched == [not verdict for verdict in verdicts] if world > 1 else watched == [True]
