"""Of the files of a sharded checkpoint a rank reads the slices that it is to hold, and opens no other file."""

from __future__ import annotations

import json
import math
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from failsoft.errors import DamagedArtifactError
from failsoft.training.boxes import Box, Piece
from failsoft.training.checkpoints.formats import FORMAT
from failsoft.training.checkpoints.shard_layout import ShardLayout, TensorShards, shard_file
from failsoft.training.checkpoints.shard_reading import ShardReader
from failsoft.training.checkpoints.tensor_file import TensorSpec
from failsoft.training.checkpoints.tensor_source import open_tensors
from tests.training.test_boxes import sharded


def shelve(folder: Path, shape: tuple[int, ...], pieces: list[Piece], dtype: torch.dtype) -> torch.Tensor:
    """A checkpoint's files of one tensor; returns it whole."""
    whole = torch.arange(math.prod(shape)).reshape(shape).to(dtype)
    name = {torch.float32: "F32", torch.bfloat16: "BF16", torch.int64: "I64"}[dtype]
    held = [piece for piece in pieces if piece.box.numel]
    for piece in pieces:
        part = whole[piece.box.seen_from((0,) * len(shape))].clone().contiguous()
        save_file({"w": part} if piece in held else {}, folder / shard_file(piece.file, len(pieces)))
    files = tuple(shard_file(rank, len(pieces)) for rank in range(len(pieces)))
    tensor = TensorShards(spec=TensorSpec(dtype=name, shape=shape), pieces=tuple(held))
    layout = ShardLayout(files=files, tensors={"w": tensor})
    (folder / "state.json").write_text(json.dumps({"format": FORMAT, "shards": layout.to_plain()}), "utf-8")
    return whole


@settings(max_examples=60, deadline=None)
@given(sharded(), st.sampled_from([torch.float32, torch.bfloat16, torch.int64]), st.data())
def test_any_slice_of_any_sharding_is_read_from_the_files_that_hold_it_alone(
    made: tuple[tuple[int, ...], list[Piece]], dtype: torch.dtype, data: st.DataObject
) -> None:
    shape, pieces = made
    offset = tuple(data.draw(st.integers(0, size)) for size in shape)
    size = tuple(data.draw(st.integers(0, most - at)) for most, at in zip(shape, offset, strict=True))
    wanted = Box(offset=offset, size=size)
    with TemporaryDirectory() as name:
        folder = Path(name)
        whole = shelve(folder, shape, pieces, dtype)
        with closing(ShardReader(folder, rank=0, world=1)) as reader:
            found = reader.read("w", wanted)
            assert found.dtype == dtype
            assert torch.equal(found, whole[wanted.seen_from((0,) * len(shape))])
            assert reader.opened == {piece.file for piece in pieces if piece.box.overlap(wanted).numel}
        source = open_tensors(folder)
        source.refuse_gaps()
        assert np.array_equal(source.read("w"), whole.float().numpy() if dtype is torch.bfloat16 else whole.numpy())


def test_a_layout_that_promises_what_a_file_does_not_hold_is_damage(tmp_path: Path) -> None:
    pieces = [Piece(file=rank, box=Box(offset=(2 * rank,), size=(2,))) for rank in range(2)]
    shelve(tmp_path, (4,), pieces, torch.float32)
    save_file({"w": torch.zeros(3)}, tmp_path / shard_file(1, 2))
    with pytest.raises(DamagedArtifactError, match=r"should hold F32 \[2\] of w, but holds F32 \[3\]"):
        open_tensors(tmp_path)
    save_file({"other": torch.zeros(2)}, tmp_path / shard_file(1, 2))
    with pytest.raises(DamagedArtifactError, match="nothing of it"):
        open_tensors(tmp_path)
