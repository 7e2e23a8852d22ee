"""What is written down about shards is read back, and what can't be a state is told."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.errors import ConfigError, DamagedArtifactError
from failsoft.training.boxes import Box
from failsoft.training.checkpoints.shard_layout import Held, ShardLayout, ShardPlace, merged
from failsoft.training.checkpoints.tensor_file import TensorSpec


def slab(rank: int, world: int, *, rows: int = 7, own: bool = False) -> dict[str, Held]:
    """A matrix cut by rows, a number that is alike, and a buffer of each rank."""
    share = -(-rows // world)
    begin = min(rank * share, rows)
    matrix = Held(
        spec=TensorSpec(dtype="F32", shape=(rows, 2)),
        box=Box(offset=(begin, 0), size=(max(0, min(share, rows - begin)), 2)),
        writes=True,
        mesh=(world,),
        placements=("S(0)",),
    )
    number = Held(spec=TensorSpec(dtype="F32", shape=()), box=Box.whole(()), writes=rank == 0)
    buffer = Held(spec=TensorSpec(dtype="I64", shape=(3,)), box=Box.whole((3,)), writes=True, own=True)
    return {"matrix": matrix, "number": number} | ({"buffer": buffer} if own else {})


def layout(world: int, *, rows: int = 7) -> ShardLayout:
    files = ShardPlace(rank=0, world=world, attempt="").files
    return merged([slab(rank, world, rows=rows, own=True) for rank in range(world)], files)


@given(st.integers(1, 9), st.integers(1, 12))
def test_a_layout_comes_back_from_json_as_it_was(world: int, rows: int) -> None:
    made = layout(world, rows=rows)
    assert ShardLayout.from_plain(json.loads(json.dumps(made.to_plain())), where="here") == made
    held = slab(0, world, rows=rows)["matrix"]
    assert Held.from_plain(json.loads(json.dumps(held.to_plain()))) == held


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 12))
def test_each_rank_of_any_new_number_reads_its_rows_and_at_the_same_number_its_own_file_only(
    was: int, now: int, rows: int
) -> None:
    made = layout(was, rows=rows)
    for rank in range(now):
        wanted = slab(rank, now, rows=rows)["matrix"].box
        reads = made.reads("matrix", wanted, rank=rank, world=now)
        assert sum(read.box.numel for read in reads) == wanted.numel
        assert (was != now) or [read.piece.file for read in reads] in ([rank], [])


def test_a_rank_s_own_buffer_is_its_own_again_and_rank_zero_s_where_there_are_more_or_fewer() -> None:
    made = layout(3)
    box = Box.whole((3,))
    assert [made.reads("buffer", box, rank=rank, world=3)[0].piece.file for rank in range(3)] == [0, 1, 2]
    assert [made.reads("buffer", box, rank=rank, world=4)[0].piece.file for rank in range(4)] == [0, 0, 0, 0]


def test_ranks_that_together_hold_only_part_of_a_tensor_make_no_checkpoint() -> None:
    with pytest.raises(ConfigError, match=r"hold 8 of 14 numbers of matrix.*shard the model over all ranks of the run"):
        merged([slab(0, 2)], ["one"])


def test_what_is_no_layout_is_damage_and_so_is_a_file_that_is_not_named() -> None:
    with pytest.raises(DamagedArtifactError, match="here does not say which shard holds what"):
        ShardLayout.from_plain({"files": []}, where="here")
    plain = layout(2).to_plain()
    with pytest.raises(DamagedArtifactError, match="a file that it does not name"):
        ShardLayout.from_plain(plain | {"files": plain["files"][:1]}, where="here")
