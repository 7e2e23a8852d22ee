"""What does not fit is refused by name before anything is changed, instead of being bent until it does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from failsoft.artifacts.manifest import describe, read_manifest
from failsoft.errors import IncompatibleArtifactError
from failsoft.training.checkpoints.checkpoint import Checkpoints
from failsoft.training.state import load_model_tensors, model_tensors
from failsoft.training.state_fit import misfits, refuse_missing_moments
from tests.training.toys import same, toy_loop, toy_model, weights_of


@pytest.mark.parametrize(("saved", "live"), [(torch.float64, torch.float32), (torch.float32, torch.bfloat16)])
def test_another_dtype_is_refused_with_the_names_both_kinds_and_the_mend(saved: torch.dtype, live: torch.dtype) -> None:
    model, before = toy_model(0).to(live), weights_of(toy_model(0).to(live))
    with pytest.raises(IncompatibleArtifactError) as caught:
        load_model_tensors(model, model_tensors(toy_model(1).to(saved)))
    said = str(caught.value)
    names = (str(saved).removeprefix("torch."), str(live).removeprefix("torch."))
    assert f"0.bias is {names[0]}, the model has {names[1]}" in said
    assert "convert=True" in said
    assert same(weights_of(model), before)


def test_asked_for_it_is_converted() -> None:
    model, source = toy_model(0), toy_model(1).double()
    load_model_tensors(model, model_tensors(source), convert=True)
    assert torch.equal(model_tensors(model)["model/0.weight"], model_tensors(source)["model/0.weight"].float())


def test_a_run_whose_model_has_another_dtype_now_is_refused_unless_it_says_so(tmp_path: Path) -> None:
    toy_loop(tmp_path).run()
    loop = toy_loop(tmp_path)
    loop.state.model.to(torch.bfloat16)
    with pytest.raises(IncompatibleArtifactError, match="is float32, the model has bfloat16"):
        loop.checkpoints.restore(loop.state, seed=3)
    old = loop.checkpoints
    checkpoints = Checkpoints(store=old.store, identity=old.identity, ranks=old.ranks, ledger=old.ledger, convert=True)
    restored = checkpoints.restore(loop.state, seed=3)
    assert restored is not None
    assert restored.position == 24


@given(st.dictionaries(st.sampled_from("abc"), st.sampled_from([torch.float32, torch.float16]), min_size=1))
def test_what_is_the_same_fits_and_each_difference_is_said_once(kinds: dict[str, torch.dtype]) -> None:
    saved = {f"model/{name}": torch.zeros(2, dtype=kind) for name, kind in kinds.items()}
    assert misfits(saved, dict(saved), prefix="model/", convert=False) == []
    live = {name: tensor.double() for name, tensor in saved.items()}
    assert len(misfits(saved, live, prefix="model/", convert=False)) == len(saved)
    assert misfits(saved, live, prefix="model/", convert=True) == []


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters())


MOMENTS = {f"optimizer/{index}/{moment}": torch.zeros(1) for index in range(6) for moment in ("exp_avg", "exp_avg_sq")}


def test_moments_that_were_promised_and_are_gone_are_named() -> None:
    kept = {name: tensor for name, tensor in MOMENTS.items() if name != "optimizer/3/exp_avg"}
    refuse_missing_moments(adam(toy_model()), MOMENTS, promised=MOMENTS)
    with pytest.raises(IncompatibleArtifactError, match=r"missing in the saved state: optimizer/3/exp_avg;"):
        refuse_missing_moments(adam(toy_model()), kept, promised=MOMENTS)


def test_an_old_state_promises_nothing_but_a_parameter_lacks_what_its_equals_have() -> None:
    optimizer = torch.optim.AdamW([nn.Parameter(torch.zeros(3)) for _ in range(6)])
    refuse_missing_moments(optimizer, MOMENTS, promised=None)
    kept = {name: tensor for name, tensor in MOMENTS.items() if name != "optimizer/3/exp_avg"}
    with pytest.raises(IncompatibleArtifactError, match=r"optimizer/3/exp_avg;"):
        refuse_missing_moments(optimizer, kept, promised=None)


def test_a_frozen_parameter_and_one_of_another_shape_may_have_other_moments_in_an_old_state() -> None:
    optimizer = torch.optim.Adafactor(
        [nn.Parameter(torch.zeros(2, 2)), nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(2))]
    )
    saved = {
        "optimizer/0/row_var": torch.zeros(1),
        "optimizer/0/col_var": torch.zeros(1),
        "optimizer/1/variance": torch.zeros(1),
    }
    refuse_missing_moments(optimizer, saved, promised=None)


def test_a_run_does_not_go_on_when_the_file_lacks_moments_that_there_were(tmp_path: Path) -> None:
    toy_loop(tmp_path).run()
    folder = max((tmp_path / "checkpoints").glob("position-*"))
    scalars, before = json.loads((folder / "state.json").read_text("utf-8")), read_manifest(folder)
    scalars["optimizer_tensors"].append("optimizer/9/exp_avg")
    (folder / "state.json").write_text(json.dumps(scalars), "utf-8")
    (folder / "manifest.json").unlink()
    signed = describe(folder, kind=before.kind, created_at_s=before.created_at_s, meta=before.meta)
    (folder / "manifest.json").write_text(signed.to_json(), "utf-8")
    with pytest.raises(IncompatibleArtifactError, match=r"moments of the optimizer are missing.*optimizer/9/exp_avg;"):
        toy_loop(tmp_path).run()
