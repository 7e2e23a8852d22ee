"""The layout is the one that the safetensors library reads and writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load, save_file

from failsoft.errors import ConfigError, DamagedArtifactError
from failsoft.training.checkpoints.tensor_file import ELEMENT_BYTES, TensorFile, TensorSpec, lay_out

specs = st.dictionaries(
    st.text(min_size=1, max_size=12),
    st.builds(
        TensorSpec,
        dtype=st.sampled_from(sorted(ELEMENT_BYTES)),
        shape=st.lists(st.integers(0, 4), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=8,
)


@given(specs)
def test_the_library_reads_what_is_laid_out_and_nothing_is_misaligned(wanted: dict[str, TensorSpec]) -> None:
    layout = lay_out(wanted)
    read = load(layout.header + bytes(layout.total_bytes - len(layout.header)))
    assert {name: tuple(tensor.shape) for name, tensor in read.items()} == {n: s.shape for n, s in wanted.items()}
    assert all(layout.begins[name] % ELEMENT_BYTES[spec.dtype] == 0 for name, spec in wanted.items())


def test_a_kind_of_numbers_without_a_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="C128"):
        lay_out({"a": TensorSpec(dtype="C128", shape=(2,))})


def test_what_the_library_wrote_is_read_without_torch(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    tensors = {
        "a/x": torch.arange(6.0).reshape(2, 3),
        "b": torch.tensor(3),
        "half": torch.tensor([1.5, -2.0]).bfloat16(),
    }
    save_file(tensors, path)
    file = TensorFile(path)
    assert list(file) == ["a/x", "b", "half"]
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(file.read(name), tensor.float().numpy())


@pytest.mark.parametrize("content", [b"", b"\xff" * 8, b"\x02\0\0\0\0\0\0\0[]", b"\x10\0\0\0\0\0\0\0{"])
def test_a_torn_header_is_damage(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    path.write_bytes(content)
    with pytest.raises(DamagedArtifactError, match="no tensor file"):
        TensorFile(path)


def test_a_file_that_ends_within_a_tensor_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    save_file({"a": torch.ones(100)}, path)
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(DamagedArtifactError, match="ends within a"):
        TensorFile(path).read("a")
