from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from failsoft.errors import ConfigError
from failsoft.release.quantize import Width, narrowed, stored_bytes, to_int8

WEIGHT = torch.randn(16, 32, generator=torch.Generator().manual_seed(3))


def test_int8_is_off_by_at_most_half_a_step_of_its_row() -> None:
    small = to_int8(WEIGHT)
    step = WEIGHT.abs().amax(dim=1, keepdim=True) / 127.0
    assert bool(((small.widened() - WEIGHT).abs() <= step / 2 + 1e-7).all())


def test_each_row_has_a_scale_of_its_own() -> None:
    lopsided = torch.stack([WEIGHT[0] * 1e-3, WEIGHT[1] * 1e3])
    relative = (to_int8(lopsided).widened() - lopsided).abs().amax(dim=1) / lopsided.abs().amax(dim=1)
    assert relative.tolist() == pytest.approx([0.0, 0.0], abs=0.005)


@given(st.integers(1, 5), st.integers(1, 7), st.floats(-30, 30))
def test_int8_keeps_zero_and_sign_and_symmetry(rows: int, columns: int, exponent: float) -> None:
    weight = torch.randn(rows, columns, generator=torch.Generator().manual_seed(rows)) * 2.0**exponent
    small = to_int8(weight)
    assert bool((to_int8(-weight).values == -small.values).all())
    assert bool((small.widened() * weight >= 0).all())
    assert bool((to_int8(torch.zeros(rows, columns)).widened() == 0).all())


def test_a_row_of_zeros_does_not_become_nan() -> None:
    weight = torch.zeros(2, 4)
    weight[0, 0] = 1.0
    assert bool(torch.isfinite(to_int8(weight).widened()).all())


def test_convolutions_are_scaled_for_each_output_channel() -> None:
    assert to_int8(torch.randn(6, 3, 5)).scales.shape == (6, 1, 1)


@pytest.mark.parametrize("tensor", [torch.randn(4), torch.ones(2, 2, dtype=torch.int64)])
def test_vectors_and_integers_are_not_put_into_int8(tensor: torch.Tensor) -> None:
    with pytest.raises(ConfigError, match="stays as it is"):
        to_int8(tensor)


@pytest.mark.parametrize("width", Width)
def test_biases_stay_whole_and_weights_keep_their_type(width: Width) -> None:
    state = {"weight": WEIGHT, "bias": torch.randn(16), "count": torch.tensor(3)}
    small = narrowed(state, width)
    assert small["bias"] is state["bias"]
    assert small["count"] is state["count"]
    assert small["weight"].dtype == torch.float32
    assert not torch.equal(small["weight"], WEIGHT)


def test_a_weight_beyond_fp16_becomes_inf() -> None:
    assert bool(torch.isinf(narrowed({"w": torch.full((2, 2), 1e6)}, Width.FP16)["w"]).all())


def test_narrow_weights_take_less_room() -> None:
    state = {"weight": WEIGHT}
    assert [stored_bytes(state, width) for width in (Width.BF16, Width.FP16, Width.INT8)] == [1024, 1024, 512 + 64]
