"""Narrow weights answer, take less room, and come back from disk as they went."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from failsoft.errors import ConfigError, IncompatibleArtifactError
from failsoft.models.narrow import NarrowWeight, Stored, Width, narrow_copy, save_narrow, stored_as, to_int8
from failsoft.models.predictor import IntentNerPredictor
from tests.models.test_predictor import parts
from tests.models.toys import toy_corpus, toy_predictor

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


@pytest.mark.parametrize("tensor", [torch.randn(4), torch.ones(2, 2, dtype=torch.int64)])
def test_vectors_and_integers_are_not_put_into_int8(tensor: torch.Tensor) -> None:
    with pytest.raises(ConfigError, match="stays as it is"):
        to_int8(tensor)


def served(folder: Path, width: Width) -> IntentNerPredictor:
    """The toy model as serving loads it from a folder whose weights are narrow."""
    paths = parts(folder, toy_predictor())
    save_narrow(toy_predictor().model, paths["weights.safetensors"], width, of="r-1")
    return IntentNerPredictor.load_roles(paths)


@pytest.mark.parametrize("width", Width)
def test_a_narrow_release_is_loaded_by_the_loader_of_whole_ones_and_answers_alike(tmp_path: Path, width: Width) -> None:
    texts = [sample.text for sample in toy_corpus().test]
    whole, narrow = toy_predictor().predict(texts), served(tmp_path, width).predict(texts)
    apart = np.abs(whole.intent_logits_BC - narrow.intent_logits_BC)
    assert 0.0 < apart.max() < 0.5
    assert np.mean([a == b for a, b in zip(whole.best_intents(), narrow.best_intents(), strict=True)]) > 0.99


@pytest.mark.parametrize("width", Width)
def test_what_is_served_is_what_was_measured_before_it_was_stored(tmp_path: Path, width: Width) -> None:
    healthy, texts = toy_predictor(), [sample.text for sample in toy_corpus().test[:30]]
    measured = IntentNerPredictor(narrow_copy(healthy.model, width), healthy.codec, healthy.labels).predict(texts)
    assert np.array_equal(measured.intent_logits_BC, served(tmp_path, width).predict(texts).intent_logits_BC)


@pytest.mark.parametrize(("width", "share"), [(Width.BF16, 0.6), (Width.FP16, 0.6), (Width.INT8, 0.4)])
def test_narrow_weights_take_less_room_on_disk_and_in_memory(tmp_path: Path, width: Width, share: float) -> None:
    def held(predictor: IntentNerPredictor) -> int:
        return sum(tensor.numel() * tensor.element_size() for tensor in predictor.model.state_dict().values())

    parts(tmp_path, toy_predictor())
    whole_bytes = (tmp_path / "weights.safetensors").stat().st_size
    narrow = served(tmp_path, width)
    assert (tmp_path / "weights.safetensors").stat().st_size < share * whole_bytes
    assert held(narrow) < share * held(toy_predictor())


def test_the_model_that_is_narrowed_stays_as_it_is() -> None:
    before = {name: tensor.clone() for name, tensor in toy_predictor().model.state_dict().items()}
    narrow_copy(toy_predictor().model, Width.INT8)
    assert all(torch.equal(tensor, before[name]) for name, tensor in toy_predictor().model.state_dict().items())


def test_a_file_says_how_it_is_stored_and_whose_weights_they_are(tmp_path: Path) -> None:
    paths = parts(tmp_path, toy_predictor())
    assert stored_as(paths["weights.safetensors"]) == Stored(width=None, of=None)
    served(tmp_path, Width.INT8)
    assert stored_as(paths["weights.safetensors"]) == Stored(width=Width.INT8, of="r-1")


def test_a_width_of_a_newer_kind_and_a_file_of_another_width_are_refused(tmp_path: Path) -> None:
    paths = parts(tmp_path, toy_predictor())
    save_file({"w": WEIGHT}, paths["weights.safetensors"], metadata={"width": "int4"})
    with pytest.raises(IncompatibleArtifactError, match="int4"):
        IntentNerPredictor.load_roles(paths)
    tensors = dict(toy_predictor().model.state_dict())
    save_file(tensors, paths["weights.safetensors"], metadata={"width": "int8"})
    with pytest.raises(IncompatibleArtifactError, match="not both"):
        IntentNerPredictor.load_roles(paths)


def test_a_weight_beyond_fp16_becomes_inf() -> None:
    assert bool(torch.isinf(NarrowWeight(torch.full((2, 2), 1e6), Width.FP16).widened()).all())


@pytest.mark.parametrize("width", Width)
def test_single_rows_are_those_of_the_whole_table(width: Width) -> None:
    table = NarrowWeight(WEIGHT, width)
    numbers = torch.tensor([[0, 15], [3, 3]])
    assert torch.equal(table.widened(numbers), table.widened()[numbers])
    assert not torch.equal(table.widened(), WEIGHT)


def test_what_is_not_finite_stays_so_in_int8_and_its_neighbours_in_other_rows_do_not() -> None:
    weight = torch.tensor([[1.0, math.nan, 2.0], [1.0, math.inf, 2.0], [1.0, 2.0, 0.0]])
    small = to_int8(weight)
    assert torch.isfinite(small.scales.flatten()).tolist() == [False, False, True]
    assert torch.isfinite(small.widened()).all(dim=1).tolist() == [False, False, True]
