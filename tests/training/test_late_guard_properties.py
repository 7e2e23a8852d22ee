"""The verdict that stays on the device: the same ends as with the guard that waits, generators excepted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim.lr_scheduler import ExponentialLR

from failsoft.training.guard import StepGuard, StepOutcome
from failsoft.training.late_guard import LateStepGuard
from tests.training.twins import FLOOR, OPTIMIZERS, REFUSALS, WARM_UP, Bad, Recipe, difference

FUSED = sorted(name for name in OPTIMIZERS if "fused" in name or "capturable" in name)
PLANS = st.lists(st.sampled_from([None, None, *Bad]), min_size=1, max_size=12).map(
    lambda kinds: [*[None] * WARM_UP, *kinds]
)
FIRST_BAD = st.lists(st.sampled_from([Bad.NAN_LOSS, Bad.NAN_INPUT, Bad.INF_GRADIENT]), min_size=1, max_size=3)
few = settings(max_examples=8, deadline=None)


def no_chance() -> nn.Module:
    """Buffers, but no dropout: this guard does not rewind generators."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 1))


def late_recipe(name: str, **more: Any) -> Recipe:
    return replace(
        Recipe(optimizer=OPTIMIZERS[name], model=no_chance, scheduler=lambda o: ExponentialLR(o, gamma=0.9)), **more
    )


def run_late(recipe: Recipe, plan: Sequence[Bad | None]) -> tuple[dict[str, Any], list[StepOutcome]]:
    run = recipe.make()
    late, outcomes = LateStepGuard(run.guard), list[StepOutcome]()
    shares = None if len(run.sizes) == 1 else [size / sum(run.sizes) for size in run.sizes]
    for number, bad in enumerate(plan):
        computes = run.computes(number, bad)
        outcomes += late.step(computes if shares else computes[0], shares=shares, position=number)
    outcomes += late.settle()
    return run.everything(), outcomes


def told_apart(recipe: Recipe, plan: Sequence[Bad | None]) -> str | None:
    """Where a late run of the plan and one without its bad batches differ; both late, so the same kernels."""
    met, outcomes = run_late(recipe, plan)
    assert [outcome.position for outcome in outcomes] == list(range(len(plan)))
    for outcome, bad in zip(outcomes, plan, strict=True):
        assert outcome.refusal is (None if bad is None else REFUSALS[bad]), outcome
    spared = recipe.make()
    late = LateStepGuard(spared.guard)
    shares = None if len(spared.sizes) == 1 else [size / sum(spared.sizes) for size in spared.sizes]
    for number, bad in enumerate(plan):
        if bad is None:
            computes = spared.computes(number)
            late.step(computes if shares else computes[0], shares=shares, position=number)
    late.settle()
    return difference(met, spared.everything())


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("name", FUSED)
@few
@given(plan=PLANS)
def test_a_run_ends_as_if_it_had_never_seen_the_bad_batches(name: str, scaled: bool, plan: list[Bad | None]) -> None:
    one_parameter_overflows = [None if bad is Bad.OVERFLOW else bad for bad in plan]  # called not finite here
    assert told_apart(late_recipe(name, scaled=scaled), one_parameter_overflows) is None


@pytest.mark.parametrize("name", FUSED)
@few
@given(bad=FIRST_BAD)
def test_bad_batches_before_the_first_good_one_leave_nothing(name: str, bad: list[Bad]) -> None:
    assert told_apart(late_recipe(name), [*bad, None, None, None]) is None


@pytest.mark.parametrize("sizes", [(4, 4), (3, 3, 2)])
@few
@given(plan=PLANS)
def test_accumulation_changes_nothing_about_it(sizes: tuple[int, ...], plan: list[Bad | None]) -> None:
    finite = [None if bad is Bad.OVERFLOW else bad for bad in plan]
    assert told_apart(late_recipe("adamw fused", sizes=sizes), finite) is None


@few
@given(plan=PLANS)
def test_the_late_verdicts_and_the_end_are_those_of_the_guard_that_waits(plan: list[Bad | None]) -> None:
    finite = [None if bad is Bad.OVERFLOW else bad for bad in plan]
    recipe = late_recipe("adamw fused", max_grad_norm=None)
    late, outcomes = run_late(recipe, finite)
    waiting = recipe.make()
    for number, bad in enumerate(finite):
        waiting.step(number, bad)
    assert [outcome.refusal for outcome in outcomes] == [outcome.refusal for outcome in waiting.outcomes]
    assert [outcome.bad_tensor for outcome in outcomes] == [outcome.bad_tensor for outcome in waiting.outcomes]
    for part in ("model", "optimizer", "scheduler", "ema"):
        assert difference(late[part], waiting.everything()[part], part) is None


def test_finite_gradients_whose_norm_overflows_are_refused() -> None:
    recipe = late_recipe("adamw fused")
    met, outcomes = run_late(recipe, [None, Bad.OVERFLOW, None])
    spared, _ = run_late(recipe, [None])
    assert [outcome.applied for outcome in outcomes] == [True, False, True]
    assert difference(met["scheduler"]["last_epoch"], 2) is None
    assert spared["scheduler"]["last_epoch"] == 1


def mean_square(model: nn.Module, inputs: Tensor) -> Callable[[], Tensor]:
    return lambda: torch.as_tensor(model(inputs)).square().mean()


@pytest.mark.cuda
@pytest.mark.parametrize("name", ["adamw fused", "sgd momentum fused"])
@pytest.mark.parametrize("scaled", [False, True])
def test_a_step_never_waits_for_the_device(name: str, scaled: bool) -> None:
    model = no_chance().cuda()
    guard = StepGuard(
        model=model,
        optimizer=OPTIMIZERS[name](list(model.parameters())),
        scaler=GradScaler("cuda", init_scale=FLOOR) if scaled else None,
    )
    late = LateStepGuard(guard)
    inputs = torch.randn(8, 4, device="cuda")
    for _ in range(3):  # the first steps may: state and scale are made
        late.step(mean_square(model, inputs))
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(5):
            late.step(mean_square(model, inputs))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert late.settle()[0].applied


@pytest.mark.cuda
@pytest.mark.parametrize("name", ["adamw fused", "sgd momentum fused"])
def test_bad_batches_leave_nothing_on_a_device_either(name: str) -> None:
    ends = []
    for plan in ([False, True, False, True, False], [False, False, False]):
        model = no_chance().cuda()
        late = LateStepGuard(StepGuard(model=model, optimizer=OPTIMIZERS[name](list(model.parameters()))))
        inputs = torch.randn(8, 4, generator=torch.Generator().manual_seed(3)).cuda()
        for bad in plan:
            late.step(mean_square(model, inputs * torch.nan if bad else inputs))
        late.settle()
        ends.append({key: tensor.cpu() for key, tensor in model.state_dict().items()})
    assert difference(ends[0], ends[1]) is None
