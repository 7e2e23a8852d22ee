from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from failsoft.errors import ConfigError
from failsoft.health.faults import FaultKind
from failsoft.training.faulty import strike_loss
from failsoft.training.guard import GuardPolicy, Refusal, StepGuard, StepOutcome
from failsoft.training.ranks import SoloRank
from failsoft.training.relief import ReliefPolicy
from failsoft.training.spikes import SpikePolicy
from tests.training.toys import same, toy_data, toy_model, weights_of

Make = Callable[[list[nn.Parameter]], Optimizer]

OPTIMIZERS: dict[str, Make] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "sgd momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "sgd momentum fused": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "adamw foreach": lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True),
    "adamw fused": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
}


def make(name: str = "adamw", **more: Any) -> StepGuard:
    model = toy_model()
    return StepGuard(model=model, optimizer=OPTIMIZERS[name](list(model.parameters())), **more)


def batch_loss(model: nn.Module, number: int, kinds: Sequence[FaultKind] = ()) -> Callable[[], Tensor]:
    inputs, targets = toy_data()
    rows = torch.arange(number * 8, number * 8 + 8) % len(inputs)
    return lambda: strike_loss(nn.functional.mse_loss(model(inputs[rows]), targets[rows]), kinds, model)


def step(guard: StepGuard, number: int, *kinds: FaultKind) -> StepOutcome:
    return guard.step(batch_loss(guard.model, number, kinds), position=number)


def test_a_gradient_with_one_inf_is_refused_before_the_clip_and_no_weight_changes() -> None:
    """pytorch#46849: the clip would have turned the Inf into NaN, and all other gradients into 0."""
    guard = make()
    step(guard, 0)
    before = weights_of(guard.model)
    outcome = step(guard, 1, FaultKind.INF_GRADIENT)
    assert outcome.refusal is Refusal.GRADIENT
    assert outcome.bad_tensor == "0.weight"
    assert same(before, weights_of(guard.model))


def test_a_nan_loss_is_refused_and_the_batch_norm_statistics_are_as_before() -> None:
    guard = make()
    step(guard, 0)
    before = weights_of(guard.model)
    poisoned = torch.full((8, 4), torch.nan)
    outcome = guard.step(lambda: guard.model(poisoned).sum())
    assert outcome.refusal is Refusal.LOSS
    assert same(before, weights_of(guard.model))
    assert torch.isfinite(guard.model(toy_data()[0])).all()


def test_a_nan_loss_with_finite_gradients_is_refused() -> None:
    guard = make()
    outcome = guard.step(lambda: guard.model(toy_data()[0]).sum() + torch.tensor(torch.nan))
    assert outcome.refusal is Refusal.LOSS


def test_a_norm_that_overflows_from_finite_gradients_has_its_own_reason() -> None:
    guard = make()
    before = weights_of(guard.model)
    outcome = guard.step(lambda: guard.model(toy_data()[0]).square().sum() * 1e30)
    assert outcome.refusal is Refusal.OVERFLOW
    assert outcome.bad_tensor is not None
    assert same(before, weights_of(guard.model))


def test_the_scheduler_moves_on_applied_steps_only() -> None:
    """pytorch#55585, Lightning#21339."""
    model = toy_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=20)
    guard = StepGuard(model=model, optimizer=optimizer, scheduler=scheduler)
    step(guard, 0)
    rate = optimizer.param_groups[0]["lr"]
    refused = [step(guard, number, FaultKind.INF_GRADIENT) for number in range(1, 6)]
    assert sum(not outcome.applied for outcome in refused) == 5
    assert optimizer.param_groups[0]["lr"] == rate
    assert step(guard, 6).applied
    assert optimizer.param_groups[0]["lr"] != rate


def test_170_bad_steps_in_a_row_leave_the_loss_scale_at_its_floor_and_the_next_good_step_finite() -> None:
    scaler = GradScaler("cpu", init_scale=65536.0)
    guard = make(scaler=scaler, policy=GuardPolicy(min_loss_scale=2.0))
    for number in range(170):
        assert not step(guard, number, FaultKind.INF_GRADIENT).applied
    assert scaler.get_scale() == 2.0
    assert step(guard, 170).applied
    assert all(torch.isfinite(tensor).all() for tensor in weights_of(guard.model).values())


def test_a_norm_that_is_too_large_with_a_grad_scaler_raises_nothing_and_the_scale_stays() -> None:
    """A skip between ``unscale_`` and ``update`` made the next ``unscale_`` raise; and a spike is no overflow."""
    scaler = GradScaler("cpu", init_scale=1024.0, growth_interval=4)
    spikes = SpikePolicy(window=2, warm_up=2, min_relative_spread=1.0)
    guard = make(scaler=scaler, policy=GuardPolicy(norm_spikes=spikes))
    step(guard, 0)
    step(guard, 1)
    outcome = guard.step(lambda: batch_loss(guard.model, 2)() * 1e4, position=2)
    assert outcome.refusal is Refusal.GRADIENT_SPIKE
    assert (scaler.get_scale(), scaler.state_dict()["_growth_tracker"]) == (1024.0, 2)
    assert [step(guard, number).applied for number in (3, 4)] == [True] * 2
    assert scaler.get_scale() == 2048.0


def test_a_norm_that_overflows_with_a_grad_scaler_backs_off_once() -> None:
    scaler = GradScaler("cpu", init_scale=1024.0)
    guard = make(scaler=scaler)
    outcome = guard.step(lambda: guard.model(toy_data()[0]).square().sum() * 1e30)
    assert outcome.refusal is Refusal.OVERFLOW
    assert scaler.get_scale() == 512.0
    assert step(guard, 1).applied


def test_a_refusal_with_a_grad_scaler_backs_off_once_and_the_next_steps_go_on() -> None:
    scaler = GradScaler("cpu", init_scale=1024.0, growth_interval=3)
    guard = make(scaler=scaler)
    step(guard, 0)
    step(guard, 1)
    step(guard, 2, FaultKind.NAN_BATCH)
    assert scaler.get_scale() == 512.0
    assert scaler.state_dict()["_growth_tracker"] == 0
    assert [step(guard, number).applied for number in (3, 4, 5)] == [True] * 3
    assert scaler.get_scale() == 1024.0


@pytest.mark.parametrize("name", ["sgd", "adamw", "adamw foreach", "adamw fused"])
def test_clipping_with_and_without_a_grad_scaler_gives_the_same_weights(name: str) -> None:
    plain = make(name, policy=GuardPolicy(max_grad_norm=0.05))
    scaled = make(name, policy=GuardPolicy(max_grad_norm=0.05), scaler=GradScaler("cpu", init_scale=256.0))
    for guard in (plain, scaled):
        torch.manual_seed(1)
        outcomes = [step(guard, number) for number in range(6)]
        assert max(outcome.grad_norm for outcome in outcomes) > 0.05
    assert same(weights_of(plain.model), weights_of(scaled.model))


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_a_clipped_step_is_the_step_that_torch_clips(name: str) -> None:
    guard, theirs = make(name, policy=GuardPolicy(max_grad_norm=0.05)), make(name)
    torch.manual_seed(1)
    step(guard, 0)
    torch.manual_seed(1)
    batch_loss(theirs.model, 0)().backward()
    nn.utils.clip_grad_norm_(theirs.model.parameters(), 0.05)
    theirs.optimizer.step()
    for ours, reference in zip(guard.model.parameters(), theirs.model.parameters(), strict=True):
        torch.testing.assert_close(ours, reference, rtol=1e-6, atol=1e-8)


def test_a_fused_optimizer_keeps_no_grad_scale_after_a_clipped_step() -> None:
    guard = make("adamw fused", policy=GuardPolicy(max_grad_norm=1e-6))
    step(guard, 0)
    assert not hasattr(guard.optimizer, "grad_scale")


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["sgd momentum fused", "adamw fused"])
def test_a_fused_optimizer_is_clipped_in_every_precision(name: str, dtype: torch.dtype) -> None:
    model = nn.Linear(3, 1, bias=False).to(dtype)
    start = model.weight.detach().clone()
    guard = StepGuard(
        model=model, optimizer=OPTIMIZERS[name](list(model.parameters())), policy=GuardPolicy(max_grad_norm=0.5)
    )
    assert guard.step(lambda: model(torch.full((2, 3), 4.0, dtype=dtype)).sum()).applied
    moved = float((model.weight.detach() - start).norm())
    assert 0.0 < moved <= 0.1 * 0.5 * 1.05


class ReplacedBuffer(nn.Module):
    """Puts a new tensor in its buffers' places instead of writing into them; one is absent at first."""

    mean: Tensor
    latest: Tensor | None

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(2, 1)
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("latest", None)

    def forward(self, inputs: Tensor) -> Tensor:
        self.mean = 0.9 * self.mean + 0.1 * inputs.mean()
        self.latest = inputs.detach()
        return self.line(inputs)  # type: ignore[no-any-return]


def test_a_buffer_that_the_model_replaces_is_as_before_after_a_refused_step() -> None:
    model = ReplacedBuffer()
    guard = StepGuard(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    guard.step(lambda: model(torch.full((2, 2), torch.nan)).sum())
    assert (float(model.mean), model.latest) == (0.0, None)
    assert guard.step(lambda: model(torch.ones(2, 2)).sum()).applied
    assert not guard.step(lambda: model(torch.full((5, 2), torch.nan)).sum()).applied
    assert float(model.mean) == pytest.approx(0.1)
    assert model.latest is not None
    assert model.latest.shape == (2, 2)


class Fellow(SoloRank):
    """One of two ranks; the other one has a loss of 1 and a norm of 3, and no DDP makes them alike."""

    world = 2

    def sum_(self, values: Tensor) -> Tensor:
        return values.add_(torch.tensor([1.0, 3.0], dtype=values.dtype))


def test_all_ranks_learn_the_same_levels_even_where_their_norms_differ() -> None:
    """Levels of their own would end in verdicts of their own, and one rank would wait for the other for ever."""
    policy = GuardPolicy(loss_spikes=SpikePolicy(), norm_spikes=SpikePolicy())
    guard = make(policy=policy, ranks=Fellow())
    outcome = step(guard, 0)
    levels = guard.state_dict()["levels"]
    assert levels["loss"]["values"] == [pytest.approx((outcome.loss + 1.0) / 2)]
    assert levels["norm"]["values"] == [pytest.approx((outcome.grad_norm + 3.0) / 2)]


def test_the_levels_and_the_relief_of_a_run_go_on_from_its_state() -> None:
    policy = GuardPolicy(loss_spikes=SpikePolicy(window=4, warm_up=2), relief=ReliefPolicy())
    first, second = make(policy=policy), make(policy=policy)
    for number in range(3):
        step(first, number)
    step(first, 3, FaultKind.NAN_BATCH)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert second.limits == first.limits
    assert second.relief.factor == first.relief.factor == 0.5
    outcome = second.step(lambda: batch_loss(second.model, 4)() + 1e4)
    assert outcome.refusal is Refusal.LOSS_SPIKE
    assert "20 deviations over the median of the last 3 applied steps" in outcome.why


def test_the_dead_letter_hook_hears_of_refused_steps_only() -> None:
    heard: list[StepOutcome] = []
    guard = make(on_refused=heard.append)
    step(guard, 0)
    step(guard, 1, FaultKind.NAN_BATCH)
    assert [outcome.position for outcome in heard] == [1]
    assert math.isnan(heard[0].loss)


def test_a_policy_that_no_step_could_meet_is_refused_in_words() -> None:
    with pytest.raises(ConfigError, match="max_grad_norm is nan"):
        GuardPolicy(max_grad_norm=math.nan)
    with pytest.raises(ConfigError, match="min_loss_scale is 0"):
        GuardPolicy(min_loss_scale=0.0)
