from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LinearLR, LRScheduler, MultiStepLR, SequentialLR
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from failsoft.errors import IncompatibleArtifactError
from failsoft.training.guard import StepGuard
from failsoft.training.rng import capture_rng, restore_rng
from failsoft.training.state import FlatState, TrainingState, flatten, load_model_tensors, model_tensors, unflatten
from tests.training.toys import same, toy_data, toy_model, weights_of

OPTIMIZERS: dict[str, Callable[[nn.Module], Optimizer]] = {
    "sgd momentum": lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
    "adamw fused": lambda model: torch.optim.AdamW(model.parameters(), lr=0.01, fused=True),
    "adam amsgrad": lambda model: torch.optim.Adam(model.parameters(), lr=0.01, amsgrad=True),
    "two groups": lambda model: torch.optim.AdamW(_two_groups(model), lr=0.01),
}
SCHEDULERS: dict[str, Callable[[Optimizer], LRScheduler]] = {
    "lambda": lambda optimizer: LambdaLR(optimizer, lambda step: 1.0 / (1 + step)),
    "milestones": lambda optimizer: MultiStepLR(optimizer, [2, 7], gamma=0.5),
    "sequential": lambda optimizer: SequentialLR(
        optimizer, [LinearLR(optimizer, total_iters=3), CosineAnnealingLR(optimizer, 20)], [3]
    ),
    "milestones in a sequence": lambda optimizer: SequentialLR(
        optimizer, [LinearLR(optimizer, total_iters=3), MultiStepLR(optimizer, [1, 4])], [3]
    ),
}


def _two_groups(model: nn.Module) -> list[dict[str, Any]]:
    first, *rest = model.parameters()
    return [{"params": [first]}, {"params": rest, "weight_decay": 0.0}]


def trainee(optimizer: str, scheduler: str) -> tuple[TrainingState, StepGuard]:
    model = toy_model()
    optim = OPTIMIZERS[optimizer](model)
    schedule, scaler = SCHEDULERS[scheduler](optim), GradScaler("cpu", init_scale=8.0, growth_interval=4)
    state = TrainingState(model=model, optimizer=optim, scheduler=schedule, scaler=scaler)
    return state, StepGuard(model=model, optimizer=optim, scheduler=schedule, scaler=scaler)


def train(guard: StepGuard, steps: int) -> None:
    for _ in range(steps):
        guard.step(lambda: guard.model(toy_data()[0]).square().mean())


def through_disk(flat: FlatState, folder: Path) -> FlatState:
    save_file(flat.tensors, folder / "tensors.safetensors")
    scalars = json.loads(json.dumps(flat.scalars))
    return FlatState(tensors=load_file(folder / "tensors.safetensors"), scalars=scalars)


@pytest.mark.parametrize("scheduler", sorted(SCHEDULERS))
@pytest.mark.parametrize("optimizer", sorted(OPTIMIZERS))
def test_training_goes_on_bit_for_bit_after_a_way_through_the_disk(
    tmp_path: Path, optimizer: str, scheduler: str
) -> None:
    here, guard_here = trainee(optimizer, scheduler)
    train(guard_here, 5)
    rng, flat = capture_rng(), through_disk(flatten(here), tmp_path)
    there, guard_there = trainee(optimizer, scheduler)
    unflatten(flat, there, with_breaker=True)
    assert there.optimizer.param_groups[0]["lr"] == here.optimizer.param_groups[0]["lr"]
    assert _settings(there.optimizer) == _settings(here.optimizer)
    assert there.scaler is not None
    assert here.scaler is not None
    assert there.scaler.state_dict() == here.scaler.state_dict()  # the scale and its growth tracker
    for guard in (guard_here, guard_there):
        restore_rng(rng)
        train(guard, 6)
    assert same(weights_of(here.model), weights_of(there.model))
    assert there.scaler.state_dict() == here.scaler.state_dict()


def test_buffers_that_no_state_dict_keeps_are_kept() -> None:
    model = nn.Linear(2, 2)
    model.register_buffer("average", torch.tensor([3.0]), persistent=False)
    saved = {name: tensor.clone() for name, tensor in model_tensors(model).items()}
    model.get_buffer("average").fill_(9.0)
    load_model_tensors(model, saved)
    assert model.get_buffer("average").item() == 3.0


def test_tied_weights_stay_tied_and_are_kept_once(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    model[1].weight = model[0].weight
    save_file(model_tensors(model), tmp_path / "tied.safetensors")
    load_model_tensors(model, load_file(tmp_path / "tied.safetensors"))
    assert len(model_tensors(model)) == 1
    assert model[1].weight is model[0].weight


def test_a_state_of_another_model_changes_nothing_and_is_named() -> None:
    small, large = toy_model(), toy_model(hidden=9)
    before = weights_of(small)
    with pytest.raises(IncompatibleArtifactError, match=r"0\.weight is \(9, 4\), the model has \(6, 4\)"):
        load_model_tensors(small, model_tensors(large))
    with pytest.raises(IncompatibleArtifactError, match=r"1\.weight is missing"):
        load_model_tensors(small, {"model/0.weight": torch.zeros(6, 4)})
    assert same(before, weights_of(small))


def _settings(optimizer: Optimizer) -> list[dict[str, object]]:
    return [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]


def test_the_scale_and_its_growth_tracker_are_equal_after_a_resume_and_the_rates_too(tmp_path: Path) -> None:
    here, guard = trainee("two groups", "lambda")
    train(guard, 7)  # growth_interval 4: the scale has grown once, the tracker stands at 3
    there, _ = trainee("two groups", "lambda")
    unflatten(through_disk(flatten(here), tmp_path), there, with_breaker=True)
    assert here.scaler is not None
    assert there.scaler is not None
    state = there.scaler.state_dict()
    assert (state["scale"], state["_growth_tracker"]) == (16.0, 3)
    assert state == here.scaler.state_dict()
    assert _settings(there.optimizer) == _settings(here.optimizer)


def averaged() -> tuple[TrainingState, StepGuard]:
    model = toy_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    guard = StepGuard(model=model, optimizer=optimizer, ema=ema)
    return TrainingState(model=model, optimizer=optimizer, ema=ema, guard=guard), guard


def test_averaged_weights_and_the_relief_come_through_the_disk(tmp_path: Path) -> None:
    here, guard = averaged()
    guard.relief.lower(0.5)
    train(guard, 5)
    flat = through_disk(flatten(here), tmp_path)
    there, other = averaged()
    unflatten(flat, there, with_breaker=True)
    assert there.ema is not None
    assert here.ema is not None
    assert same(weights_of(there.ema), weights_of(here.ema))
    assert other.relief.factor == guard.relief.factor < 1.0
    third, kept = averaged()
    unflatten(flat, third, with_breaker=False)
    assert kept.relief.factor == 1.0  # a rollback leaves the guard as it is


def test_an_average_that_an_older_run_did_not_have_starts_from_the_restored_weights(tmp_path: Path) -> None:
    old, guard = trainee("sgd momentum", "lambda")
    train(guard, 3)
    flat = through_disk(flatten(old), tmp_path)
    model = toy_model(9)
    ema = AveragedModel(model)
    new = TrainingState(model=model, optimizer=OPTIMIZERS["sgd momentum"](model), ema=ema)
    unflatten(flat, new, with_breaker=True)
    assert same(weights_of(ema.module), weights_of(old.model))
    assert int(ema.n_averaged) == 0


def test_moments_of_another_kind_of_optimizer_are_refused_by_name_instead_of_failing_at_the_next_step() -> None:
    model = toy_model(0)
    saved = flatten(TrainingState(model=model, optimizer=torch.optim.AdamW(model.parameters())))
    into = TrainingState(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    with pytest.raises(IncompatibleArtifactError, match=r"it has amsgrad, betas.*this one has .*momentum"):
        unflatten(saved, into, with_breaker=True)
