from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import SGD, AdamW
from torch.optim.swa_utils import AveragedModel

from failsoft.errors import ConfigError
from failsoft.training.guard import GuardPolicy, Refusal, StepGuard, StepOutcome
from failsoft.training.late_guard import LateStepGuard
from failsoft.training.relief import ReliefPolicy
from tests.training.twins import FLOOR, Bad, Recipe, difference

GARBAGE = 1e13


@pytest.fixture
def garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uninitialised memory as it may come: full of what somebody else left in it."""
    empty_like = torch.empty_like

    def left_behind(tensor: Tensor, **options: Any) -> Tensor:
        return empty_like(tensor, **options).fill_(GARBAGE)

    monkeypatch.setattr(torch, "empty_like", left_behind)


@pytest.mark.usefixtures("garbage")
def test_bare_torch_writes_garbage_into_the_weights_when_the_first_fused_step_with_momentum_is_skipped() -> None:
    """The trap that the guard must not fall into; when this fails, torch was mended, and the detour can go."""
    model = nn.Linear(2, 1)
    optimizer: Any = SGD(model.parameters(), lr=0.1, momentum=0.9, fused=True)
    optimizer.grad_scale = None
    for found_inf in (1.0, 0.0):
        optimizer.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        optimizer.found_inf = torch.tensor(found_inf)
        optimizer.step()
    assert float(model.weight.detach().abs().max()) > GARBAGE / 100


@pytest.mark.usefixtures("garbage")
@pytest.mark.parametrize("dampening", [0.0, 0.3])
def test_the_guard_does_not_fall_into_that_trap(dampening: float) -> None:
    model = nn.Linear(2, 1)
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9, dampening=dampening, fused=True)
    late = LateStepGuard(StepGuard(model=model, optimizer=optimizer))
    for factor in (torch.nan, torch.nan, 1.0, torch.nan, 1.0):
        late.step(lambda factor=factor: model(torch.ones(1, 2)).sum() * factor)  # type: ignore[misc]
    late.settle()
    assert float(model.weight.detach().abs().max()) < 100


@pytest.mark.usefixtures("garbage")
def test_nor_does_it_after_a_rollback_to_before_the_first_step() -> None:
    model = nn.Linear(2, 1)
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9, fused=True)
    late = LateStepGuard(StepGuard(model=model, optimizer=optimizer))
    start = copy.deepcopy(optimizer.state_dict())
    late.step(lambda: model(torch.ones(1, 2)).sum())
    late.step(lambda: model(torch.ones(1, 2)).sum())
    late.settle()
    optimizer.load_state_dict(start)
    late.step(lambda: model(torch.ones(1, 2)).sum() * torch.nan)
    late.step(lambda: model(torch.ones(1, 2)).sum())
    late.settle()
    assert float(model.weight.detach().abs().max()) < 100


def no_chance() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 1))


def fused(parameters: Sequence[nn.Parameter]) -> AdamW:
    return AdamW(parameters, lr=0.1, fused=True)


def guarded(model: nn.Module, **more: Any) -> LateStepGuard:
    return LateStepGuard(StepGuard(model=model, optimizer=fused(list(model.parameters())), **more))


def test_an_optimizer_that_is_not_fused_is_refused_in_words() -> None:
    model = nn.Linear(2, 1)
    with pytest.raises(ConfigError, match="AdamW is not fused"):
        LateStepGuard(StepGuard(model=model, optimizer=AdamW(model.parameters())))


def test_a_state_that_switches_the_fused_kernels_off_is_stepped_on_the_host() -> None:
    model = nn.Linear(2, 1)
    unfused, late = AdamW(model.parameters(), lr=0.1), guarded(model)
    late.guard.optimizer.load_state_dict(unfused.state_dict())
    assert [outcome.applied for outcome in late.step(lambda: model(torch.ones(1, 2)).sum())] == [True]
    assert not late.step(lambda: model(torch.ones(1, 2)).sum() * torch.nan)[0].applied


def test_a_verdict_is_told_at_the_next_step_or_when_somebody_settles() -> None:
    model, heard = nn.Linear(2, 1), list[StepOutcome]()
    late = guarded(model, on_refused=heard.append)
    assert late.step(lambda: model(torch.ones(1, 2)).sum() * torch.nan, position=7, sample_ids=[1, 2]) == ()
    assert heard == []
    (outcome,) = late.settle()
    assert (outcome.position, outcome.sample_ids, outcome.refusal) == (7, (1, 2), Refusal.LOSS)
    assert heard == [outcome]
    assert late.settle() == ()


def test_the_average_of_the_weights_takes_no_buffers_from_a_batch_that_is_not_judged_yet() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    late = guarded(model, ema=(ema := AveragedModel(model, use_buffers=True)))
    inputs = torch.randn(4, 2, generator=torch.Generator().manual_seed(1))
    late.step(lambda: model(inputs).square().sum())
    late.step(lambda: model(inputs * torch.nan).square().sum())
    late.settle()
    assert all(bool(torch.isfinite(buffer).all()) for buffer in ema.buffers())
    assert difference(dict(ema.module.named_buffers()), dict(model.named_buffers())) is None


class Replacing(nn.Module):
    """Puts new tensors in its buffers' places; one changes its shape."""

    mean: Tensor
    latest: Tensor | None

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(2, 1)
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("latest", None)

    def forward(self, inputs: Tensor) -> Tensor:
        self.mean = 0.5 * self.mean + 0.5 * inputs.mean()
        self.latest = inputs.detach().clone()
        return torch.as_tensor(self.line(inputs))


@pytest.mark.parametrize("row_counts", [(2, 2, 2, 2), (2, 3, 4, 5)])
def test_buffers_that_the_model_replaces_keep_what_good_passes_wrote(row_counts: Sequence[int]) -> None:
    model = Replacing()
    late = guarded(model)
    for count, value in zip(row_counts, (1.0, torch.nan, 1.0, torch.nan), strict=True):
        late.step(lambda count=count, value=value: model(torch.full((count, 2), value)).sum())  # type: ignore[misc]
    late.settle()
    assert float(model.mean) == 0.75
    assert model.latest is not None
    assert torch.equal(model.latest, torch.ones(row_counts[2], 2))


def test_an_embedding_that_rescales_its_rows_is_stepped_on_the_host() -> None:
    model = nn.Embedding(3, 2, max_norm=1.0)
    nn.init.constant_(model.weight, 10.0)
    late = guarded(model)
    late.step(lambda: model(torch.tensor([0, 1])).sum() * torch.nan)
    assert torch.equal(model.weight, torch.full((3, 2), 10.0))


def divided_by_zero() -> Tensor:
    return torch.zeros(()) / (1 // 0)


def test_an_error_on_the_way_keeps_the_verdict_that_waits_and_leaves_nothing_else() -> None:
    recipe = Recipe(optimizer=fused, model=no_chance)
    ends = []
    for failing in (True, False):
        run = recipe.make()
        late = LateStepGuard(run.guard)
        late.step(run.computes(0)[0], position=0)
        if failing:
            with pytest.raises(ZeroDivisionError):
                late.step([run.computes(1, Bad.NAN_INPUT)[0], divided_by_zero])
        late.step(run.computes(1)[0], position=1)
        outcomes = late.settle()
        assert [outcome.position for outcome in outcomes] == [1]
        ends.append(run.everything())
    assert difference(ends[0], ends[1]) is None


def test_whoever_is_told_may_raise_and_the_batch_under_way_leaves_nothing() -> None:
    model = no_chance()

    def stop(_outcome: StepOutcome) -> None:
        raise InterruptedError

    late = guarded(model, on_refused=stop)
    inputs = torch.ones(4, 4)
    late.step(lambda: model(inputs).sum() * torch.nan)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(InterruptedError):
        late.step(lambda: model(inputs * 3).sum())
    assert difference(before, dict(model.state_dict())) is None
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_grad_scaler_never_backs_off_below_its_floor_and_takes_nothing_from_the_optimizer() -> None:
    scaler = GradScaler("cpu", init_scale=FLOOR)
    model = nn.Linear(2, 1)
    late = guarded(model, scaler=scaler, policy=GuardPolicy(min_loss_scale=2.0))
    for _ in range(170):
        late.step(lambda: model(torch.ones(1, 2)).sum() * torch.nan)
    assert scaler.get_scale() == 2.0
    late.step(lambda: model(torch.ones(1, 2)).sum())
    assert late.settle()[0].applied
    assert all(bool(torch.isfinite(parameter).all()) for parameter in model.parameters())


def test_a_verdict_that_only_we_know_of_reaches_a_grad_scaler() -> None:
    """Finite gradients under a NaN loss: the scaler finds nothing, and would overwrite what the optimizer was told."""
    scaler, model = GradScaler("cpu", init_scale=FLOOR), nn.Linear(2, 1)
    late = guarded(model, scaler=scaler)
    before = model.weight.detach().clone()
    late.step(lambda: model(torch.ones(1, 2)).sum() + torch.tensor(torch.nan))
    assert late.settle()[0].refusal is Refusal.LOSS
    assert torch.equal(model.weight.detach(), before)
    assert scaler.get_scale() == FLOOR / 2


def test_the_rate_of_a_step_knows_of_the_refusal_before_it() -> None:
    model = nn.Linear(1, 1, bias=False)
    optimizer = SGD(model.parameters(), lr=1.0, fused=True)
    policy = GuardPolicy(max_grad_norm=None, relief=ReliefPolicy(factor_per_refusal=0.25, recovery_steps=1000))
    late = LateStepGuard(StepGuard(model=model, optimizer=optimizer, policy=policy))
    start = float(model.weight.detach())
    late.step(lambda: model(torch.ones(1, 1)).sum() * torch.nan)
    late.step(lambda: model(torch.ones(1, 1)).sum())
    assert float(model.weight.detach()) == pytest.approx(start - 0.25)
    assert optimizer.param_groups[0]["lr"] == 1.0


def test_a_batch_without_gradients_for_the_optimizer_is_applied_with_a_norm_of_0() -> None:
    model, other = nn.Linear(2, 1), nn.Linear(2, 1)
    late = guarded(model)
    late.step(lambda: other(torch.ones(1, 2)).sum())
    (outcome,) = late.settle()
    assert (outcome.applied, outcome.grad_norm) == (True, 0.0)
