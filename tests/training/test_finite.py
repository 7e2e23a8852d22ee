from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from failsoft.training.finite import CHUNK_BYTES, all_finite, dense_view, first_ill, flat, raw_bytes

FLOATS = [torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.float8_e5m2, torch.float8_e4m3fn]
WITHOUT_INF = {torch.float8_e4m3fn, torch.float8_e4m3fnuz}
ODD = [torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]


def every_pattern(dtype: torch.dtype) -> Tensor:
    """All numbers of a small dtype; of a large one all signs and exponents with some mantissas."""
    size = dtype.itemsize
    if size <= 2:
        return torch.from_numpy(np.arange(1 << (8 * size), dtype=f"u{size}").view(f"i{size}")).view(dtype)
    top = np.arange(1 << 16, dtype=f"u{size}") << np.array(8 * size - 16, dtype=f"u{size}")
    low = np.array([0, 1, (1 << (8 * size - 16)) - 1], dtype=f"u{size}")
    return torch.from_numpy((top[:, None] | low[None, :]).ravel().view(f"i{size}")).view(dtype)


@pytest.mark.parametrize("dtype", FLOATS + ODD, ids=str)
def test_the_verdict_on_each_bit_pattern_is_that_of_isfinite(dtype: torch.dtype) -> None:
    numbers = every_pattern(dtype)
    truth = torch.isfinite(numbers.double())
    assert 0 < int(truth.sum()) < len(truth)
    assert all_finite(numbers[truth])  # all finite ones together, the largest too: nothing overflows
    some = torch.nonzero(~truth).flatten()
    for index in some[:: max(1, len(some) // 200)].tolist():
        assert not all_finite(numbers[index : index + 1]), numbers[index]


@given(
    size=st.integers(1, 3 * CHUNK_BYTES // 4),
    place=st.floats(0.0, 1.0, exclude_max=True),
    ill=st.sampled_from([math.nan, -math.nan, math.inf, -math.inf]),
)
def test_one_ill_number_is_found_wherever_it_lies(size: int, place: float, ill: float) -> None:
    numbers = torch.full((size,), 3.0e38)
    assert all_finite(numbers)
    numbers[int(place * size)] = ill
    assert not all_finite(numbers)


@pytest.mark.parametrize("dtype", [torch.complex128, torch.complex64], ids=str)
@pytest.mark.parametrize("ill", [complex(1.0, math.nan), complex(-math.inf, 1.0)])
def test_either_half_of_a_complex_number_may_be_ill(dtype: torch.dtype, ill: complex) -> None:
    numbers = torch.zeros(5, dtype=dtype)
    assert all_finite(numbers)
    numbers[2:3].fill_(ill)
    assert not all_finite(numbers)
    assert not all_finite(numbers.conj())


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool], ids=str)
def test_integers_are_always_finite(dtype: torch.dtype) -> None:
    assert all_finite(torch.full((4,), -1 if dtype is torch.int64 else 1).to(dtype))


def test_emptiness_is_healthy() -> None:
    assert all_finite(torch.empty(0, 3))
    assert first_ill({}) is None


@pytest.mark.parametrize(
    "tensor",
    [
        torch.rand(4, 6).t(),
        torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.rand(3, 1, 2).transpose(0, 2),
        torch.tensor(2.0),
    ],
    ids=["transposed", "channels last", "size one", "scalar"],
)
def test_dense_memory_is_seen_without_a_copy(tensor: Tensor) -> None:
    view = dense_view(tensor)
    assert view is not None
    assert (view.ndim, view.data_ptr(), view.numel()) == (1, tensor.data_ptr(), tensor.numel())
    assert sorted(view.tolist()) == sorted(tensor.flatten().tolist())


def test_gaps_and_repeats_are_copied_and_their_neighbours_are_not_looked_at() -> None:
    memory = torch.full((4, 6), torch.nan)
    memory[:, ::2] = 1.0
    gaps = memory[:, ::2]
    assert dense_view(gaps) is None
    assert all_finite(gaps)
    assert flat(gaps).tolist() == [1.0] * 12
    assert flat(torch.ones(2, 1).expand(2, 3)).tolist() == [1.0] * 6
    assert raw_bytes(gaps).size == 48


def test_the_first_ill_tensor_is_named() -> None:
    ill = torch.tensor([1.0, torch.inf])
    assert first_ill({"a": torch.ones(2), "b": ill, "c": ill}) == "b"


@pytest.mark.cuda
def test_on_a_gpu_the_first_ill_tensor_is_named_too() -> None:
    ill = torch.tensor([1.0, torch.inf], dtype=torch.bfloat16, device="cuda")
    assert first_ill({"a": torch.ones(2, device="cuda"), "b": torch.tensor(1.0)}) is None
    assert first_ill({"a": torch.ones(2, device="cuda"), "b": ill}) == "b"
    assert first_ill({"a": torch.full((9,), 6e4, dtype=torch.float16, device="cuda")}) is None
