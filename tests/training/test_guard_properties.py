"""Whatever bad batches a run meets, it ends, bit for bit, where a run ends that never saw them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import parametrizations
from torch.optim import Optimizer
from torch.optim import lr_scheduler as schedule
from torch.utils.checkpoint import checkpoint

from tests.training.twins import OPTIMIZERS, WARM_UP, Bad, Recipe, network, told_apart

PLANS = st.lists(st.sampled_from([None, None, *Bad]), min_size=1, max_size=12).map(
    lambda kinds: [*[None] * WARM_UP, *kinds]
)
FIRST_BAD = st.lists(
    st.sampled_from([Bad.NAN_LOSS, Bad.NAN_INPUT, Bad.INF_GRADIENT, Bad.OVERFLOW]), min_size=1, max_size=3
)
few = settings(max_examples=8, deadline=None)

SCHEDULERS: dict[str, Callable[[Optimizer], schedule.LRScheduler]] = {
    "one cycle": lambda o: schedule.OneCycleLR(o, max_lr=0.1, total_steps=30),
    "cosine": lambda o: schedule.CosineAnnealingLR(o, T_max=20),
    "exponential": lambda o: schedule.ExponentialLR(o, gamma=0.9),
    "cyclic": lambda o: schedule.CyclicLR(o, base_lr=0.001, max_lr=0.1, step_size_up=4, cycle_momentum=False),
    "warm-up, then cosine": lambda o: schedule.SequentialLR(
        o, [schedule.LinearLR(o, total_iters=3), schedule.CosineAnnealingLR(o, T_max=10)], milestones=[3]
    ),
}


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
@few
@given(plan=PLANS)
def test_every_optimizer_ends_as_if_it_had_never_seen_the_bad_batches(name: str, plan: list[Bad | None]) -> None:
    assert told_apart(Recipe(optimizer=OPTIMIZERS[name]), plan) is None


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
@few
@given(bad=FIRST_BAD)
def test_bad_batches_before_the_first_good_one_leave_nothing_in_any_optimizer(name: str, bad: list[Bad]) -> None:
    assert told_apart(Recipe(optimizer=OPTIMIZERS[name]), [*bad, None, None, None]) is None


@pytest.mark.parametrize("sizes", [(4, 4), (3, 3, 2), (5, 3)])
@pytest.mark.parametrize("name", ["sgd momentum", "adamw", "adamw fused"])
@few
@given(plan=PLANS)
def test_a_bad_micro_batch_takes_its_whole_batch_along_and_nothing_else(
    name: str, sizes: tuple[int, ...], plan: list[Bad | None]
) -> None:
    assert told_apart(Recipe(optimizer=OPTIMIZERS[name], sizes=sizes), plan) is None


@pytest.mark.parametrize("autocast", [None, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["sgd momentum fused", "adamw", "adamw fused"])
@few
@given(plan=PLANS)
def test_a_grad_scaler_and_autocast_change_nothing_about_it(
    name: str, autocast: torch.dtype | None, plan: list[Bad | None]
) -> None:
    assert told_apart(Recipe(optimizer=OPTIMIZERS[name], scaled=True, autocast=autocast), plan) is None


@few
@given(plan=PLANS)
def test_bfloat16_autocast_needs_no_scaler(plan: list[Bad | None]) -> None:
    assert told_apart(Recipe(autocast=torch.bfloat16), plan) is None


@pytest.mark.parametrize("name", sorted(SCHEDULERS))
@few
@given(plan=PLANS)
def test_every_scheduler_moves_on_applied_steps_only(name: str, plan: list[Bad | None]) -> None:
    recipe = Recipe(optimizer=OPTIMIZERS["sgd momentum"], scheduler=SCHEDULERS[name])
    assert told_apart(recipe, plan) is None


@pytest.mark.parametrize("max_norm", [None, 1e-3, 1e6])
@pytest.mark.parametrize("name", ["adamw", "adamw fused"])
@few
@given(plan=PLANS)
def test_clipping_or_not_changes_nothing_about_it(name: str, max_norm: float | None, plan: list[Bad | None]) -> None:
    assert told_apart(Recipe(optimizer=OPTIMIZERS[name], max_grad_norm=max_norm), plan) is None


def two_groups(parameters: list[nn.Parameter]) -> Optimizer:
    groups = [{"params": parameters[:2], "lr": 0.001}, {"params": parameters[2:], "weight_decay": 0.1}]
    return torch.optim.AdamW(groups, lr=0.01)


def half_of_them(parameters: list[nn.Parameter]) -> Optimizer:
    return torch.optim.AdamW(parameters[:3], lr=0.01)


def partly_frozen() -> nn.Module:
    model = network()
    list(model.parameters())[-1].requires_grad_(False)
    return model


def without_buffers() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Dropout(0.3), nn.Linear(6, 1))


def only_empty_buffers() -> nn.Module:
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(6, track_running_stats=False)  # as an InstanceNorm is by default
    return nn.Sequential(nn.Linear(4, 6), norm, nn.Tanh(), nn.Linear(6, 1))


def spectral() -> nn.Module:
    """Its forward pass moves the buffers of a power iteration."""
    torch.manual_seed(0)
    return nn.Sequential(parametrizations.spectral_norm(nn.Linear(4, 6)), nn.Tanh(), nn.Linear(6, 1))


class Recomputed(nn.Module):
    """Runs its forward pass a second time within the backward pass, with the same dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(checkpoint(self.inner, inputs, use_reentrant=False))


RECIPES = {
    "several groups": Recipe(optimizer=two_groups, scheduler=SCHEDULERS["exponential"]),
    "parameters that the optimizer does not own": Recipe(optimizer=half_of_them),
    "frozen parameters": Recipe(model=partly_frozen),
    "no buffers": Recipe(model=without_buffers),
    "buffers that are all None": Recipe(model=only_empty_buffers),
    "spectral norm": Recipe(model=spectral),
    "recomputed activations": Recipe(model=Recomputed),
    "compiled": Recipe(wrap=lambda model: torch.compile(model, backend="eager")),  # type: ignore[arg-type, return-value]
}


@pytest.mark.parametrize("name", sorted(RECIPES))
@few
@given(plan=PLANS)
def test_models_of_every_make_up_end_the_same(name: str, plan: list[Bad | None]) -> None:
    assert told_apart(RECIPES[name], plan) is None


@pytest.mark.parametrize("name", ["sgd", "adamw", "adamw fused"])
@pytest.mark.parametrize("sizes", [(4, 4), (3, 3, 2), (7, 1)])
def test_gradients_of_uneven_micro_batches_are_those_of_the_full_batch(name: str, sizes: tuple[int, ...]) -> None:
    whole = Recipe(optimizer=OPTIMIZERS[name], model=plain, max_grad_norm=None).make()
    parts = replace(Recipe(optimizer=OPTIMIZERS[name], model=plain, max_grad_norm=None), sizes=sizes).make()
    one, other = whole.step(0), parts.step(0)
    assert other.loss == pytest.approx(one.loss, rel=1e-6)
    for left, right in zip(whole.guard.gradients.tensors(), parts.guard.gradients.tensors(), strict=True):
        torch.testing.assert_close(left, right, rtol=1e-6, atol=1e-7)


def plain() -> nn.Module:
    """Without batch statistics and chance, which do differ between a batch and its parts."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1))
