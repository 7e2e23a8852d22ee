"""Models, optimizers and gradients that are not the common kind."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import SGD, AdamW, Optimizer, SparseAdam
from torch.optim.lr_scheduler import ReduceLROnPlateau

from failsoft.errors import ConfigError
from failsoft.training.guard import GuardPolicy, Refusal, StepGuard
from failsoft.training.late_guard import LateStepGuard
from failsoft.training.relief import ReliefPolicy
from tests.training.twins import clone, difference


def guard_of(model: nn.Module, optimizer: Optimizer | None = None, *, max_norm: float | None = 1.0) -> StepGuard:
    policy = GuardPolicy(max_grad_norm=max_norm)
    return StepGuard(model=model, optimizer=optimizer or SGD(model.parameters(), lr=0.1), policy=policy)


def everything(guard: StepGuard) -> dict[str, object]:
    parts = {"model": guard.model.state_dict(), "optimizer": guard.optimizer.state_dict()}
    return dict(clone(parts)) | {"generator": torch.get_rng_state()}


def test_an_embedding_that_rescales_its_rows_when_read_has_its_rows_back_after_a_refused_step() -> None:
    model = nn.Embedding(4, 3, max_norm=1.0)
    nn.init.constant_(model.weight, 10.0)
    guard = guard_of(model)
    guard.step(lambda: model(torch.tensor([0, 1])).sum() * math.nan)
    assert torch.equal(model.weight, torch.full((4, 3), 10.0))
    assert guard.step(lambda: model(torch.tensor([0, 1])).sum()).applied
    assert float(model.weight[0].detach().norm()) < 2.0


class LateBuffer(nn.Module):
    """Has its first buffer from its first pass on."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(2, 1)

    def forward(self, inputs: Tensor) -> Tensor:
        if not hasattr(self, "seen"):
            self.register_buffer("seen", torch.zeros(()))
        self.get_buffer("seen").add_(inputs.mean())
        return torch.as_tensor(self.line(inputs))


def test_a_buffer_that_a_refused_pass_made_is_gone_and_one_that_a_good_pass_made_stays() -> None:
    model = LateBuffer()
    guard = guard_of(model)
    bad, good = torch.full((2, 2), math.nan), torch.ones(2, 2)
    guard.step(lambda: model(bad).sum())
    assert not dict(model.named_buffers())
    guard.step(lambda: model(good).sum())
    guard.step(lambda: model(bad).sum())
    assert float(model.get_buffer("seen")) == 1.0


def test_a_buffer_that_grows_in_place_has_its_size_back() -> None:
    model = nn.Linear(2, 1)
    model.register_buffer("range", torch.ones(1))
    guard = guard_of(model)

    def grow() -> Tensor:
        model.get_buffer("range").resize_(3).fill_(math.nan)
        return torch.as_tensor(model(torch.full((1, 2), math.nan)).sum())

    guard.step(grow)
    assert torch.equal(model.get_buffer("range"), torch.ones(1))


@pytest.mark.parametrize("make", [lambda p: SGD(p, lr=0.1), lambda p: SparseAdam(list(p), lr=0.1)])
@pytest.mark.parametrize("max_norm", [0.01, None])
def test_sparse_gradients_are_judged_and_clipped(
    make: Callable[[Iterator[nn.Parameter]], Optimizer], max_norm: float | None
) -> None:
    torch.manual_seed(0)
    model, dense = nn.Embedding(5, 3, sparse=True), nn.Embedding(5, 3)
    dense.load_state_dict(model.state_dict())
    rows = torch.tensor([1, 1, 2])
    guard, reference = guard_of(model, make(model.parameters()), max_norm=max_norm), guard_of(dense)
    before = everything(guard)
    for wrong in (math.nan, math.inf):
        outcome = guard.step(lambda wrong=wrong: model(rows).square().sum() * wrong)  # type: ignore[misc]
        assert (outcome.refusal, outcome.bad_tensor) == (Refusal.LOSS, "weight")
    assert difference(before, everything(guard)) is None
    applied = guard.step(lambda: model(rows).square().sum())
    assert applied.applied
    expected = reference.step(lambda: dense(rows).square().sum())
    assert applied.grad_norm == pytest.approx(expected.grad_norm, rel=1e-6)
    left = float(model.weight.grad.coalesce().values().norm())  # type: ignore[union-attr]
    assert left == pytest.approx(applied.grad_norm if max_norm is None else max_norm, rel=1e-3)


def test_sparse_and_dense_gradients_share_one_norm() -> None:
    model = nn.Sequential(nn.Embedding(5, 3, sparse=True), nn.Linear(3, 1))
    guard = guard_of(model)
    outcome = guard.step(lambda: model(torch.tensor([1, 2])).square().sum() * 100)
    assert outcome.applied
    assert math.sqrt(sum(float(g.norm()) ** 2 for g in guard.gradients.tensors())) == pytest.approx(1.0, rel=1e-3)


def test_an_optimizer_that_evaluates_the_model_itself_is_refused_in_words() -> None:
    model = nn.Linear(2, 1)
    with pytest.raises(ConfigError, match=r"LBFGS\.step needs a closure"):
        guard_of(model, torch.optim.LBFGS(model.parameters()))


def test_a_scheduler_that_wants_a_metric_is_refused_before_the_first_step_and_in_words() -> None:
    model = nn.Linear(2, 1)
    optimizer = SGD(model.parameters(), lr=0.1)
    with pytest.raises(ConfigError, match=r"ReduceLROnPlateau\.step needs metrics.*after each evaluation"):
        StepGuard(model=model, optimizer=optimizer, scheduler=ReduceLROnPlateau(optimizer))


def test_a_float64_loss_beyond_float32_is_finite() -> None:
    model = nn.Linear(2, 1, bias=False).double()
    outcome = guard_of(model).step(lambda: model(torch.ones(1, 2).double()).sum() * 1e-9 + 1e300)
    assert outcome.applied
    assert outcome.loss == 1e300


@pytest.mark.parametrize("fused", [False, True])
def test_a_float64_norm_beyond_float32_is_clipped_and_not_lost(fused: bool) -> None:
    model = nn.Linear(2, 1, bias=False).double()
    before = model.weight.detach().clone()
    guard = guard_of(model, SGD(model.parameters(), lr=0.1, fused=fused))
    assert guard.step(lambda: model(torch.ones(1, 2).double()).sum() * 1e100).applied
    assert float((model.weight.detach() - before).norm()) == pytest.approx(0.1)


def test_a_fused_optimizer_that_took_on_the_state_of_an_unfused_one_still_clips() -> None:
    model = nn.Linear(2, 1)
    unfused = guard_of(model, AdamW(model.parameters(), lr=0.1))
    unfused.step(lambda: model(torch.ones(1, 2)).sum())
    fused = AdamW(model.parameters(), lr=0.1, fused=True)
    fused.load_state_dict(unfused.optimizer.state_dict())
    outcome = guard_of(model, fused, max_norm=1e-3).step(lambda: model(torch.ones(1, 2)).sum())
    assert outcome.applied
    assert outcome.grad_norm > 1e-3


def test_a_batch_without_gradients_for_the_optimizer_is_applied_with_a_norm_of_0() -> None:
    model, other = nn.Linear(2, 1), nn.Linear(2, 1)
    outcome = guard_of(model).step(lambda: other(torch.ones(1, 2)).sum())
    assert (outcome.applied, outcome.grad_norm) == (True, 0.0)


@pytest.mark.parametrize("late", [False, True])
def test_such_a_batch_raises_nothing_with_a_grad_scaler_either_and_leaves_its_scale(late: bool) -> None:
    model, other, scaler = nn.Linear(2, 1), nn.Linear(2, 1), GradScaler("cpu", init_scale=4.0, growth_interval=2)
    guard = StepGuard(model=model, optimizer=AdamW(model.parameters(), fused=True), scaler=scaler)
    step = LateStepGuard(guard).step if late else guard.step
    for net in (model, other, other, other):
        step(lambda net=net: net(torch.ones(1, 2)).sum())  # type: ignore[misc]
    assert scaler.get_scale() == 4.0
    step(lambda: model(torch.ones(1, 2)).sum())
    assert scaler.get_scale() == 8.0


class Foreign(Optimizer):
    """Says that it supports a GradScaler, as apex's optimizers do, and asks for the scaler itself."""

    _step_supports_amp_scaling = True

    @torch.no_grad()
    def step(self, closure: object = None, *, grad_scaler: object = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.sub_(parameter.grad)


def test_an_optimizer_that_brings_kernels_of_its_own_is_clipped_too() -> None:
    model = nn.Linear(2, 1)
    before = model.weight.detach().clone()
    assert guard_of(model, Foreign(model.parameters(), {})).step(lambda: model(torch.ones(1, 2)).sum() * 1e3).applied
    assert float((model.weight.detach() - before).norm()) <= 1.0


@pytest.mark.parametrize("defaults", [{}, {"lr": None}])
def test_relief_leaves_an_optimizer_that_finds_its_own_rate_alone(defaults: dict[str, object]) -> None:
    model = nn.Linear(2, 1)
    policy = GuardPolicy(relief=ReliefPolicy())
    guard = StepGuard(model=model, optimizer=Foreign(model.parameters(), defaults), policy=policy)
    guard.step(lambda: model(torch.full((1, 2), math.nan)).sum())
    assert guard.step(lambda: model(torch.ones(1, 2)).sum()).applied
    assert guard.optimizer.param_groups[0].get("lr") is None


def test_gradients_that_are_all_0_are_no_reason_to_refuse() -> None:
    model = nn.Linear(2, 1)
    outcome = guard_of(model, max_norm=1.0).step(lambda: model(torch.ones(1, 2)).sum() * 0.0)
    assert (outcome.applied, outcome.grad_norm) == (True, 0.0)


def test_a_disabled_grad_scaler_is_no_grad_scaler() -> None:
    model = nn.Linear(2, 1)
    guard = StepGuard(model=model, optimizer=SGD(model.parameters(), lr=0.1), scaler=GradScaler("cpu", enabled=False))
    assert not guard.step(lambda: model(torch.full((1, 2), math.nan)).sum()).applied
    assert guard.step(lambda: model(torch.ones(1, 2)).sum()).applied


class OddBuffer(nn.Module):
    """Counts its passes in a buffer of an uncommon kind."""

    def __init__(self, buffer: Tensor) -> None:
        super().__init__()
        self.line = nn.Linear(2, 1)
        self.register_buffer("odd", buffer)
        self.dense = buffer.layout is torch.strided

    def forward(self, inputs: Tensor) -> Tensor:
        with torch.no_grad():
            odd = self.get_buffer("odd")
            (odd[:1].detach() if self.dense else odd.values()).add_(1.0)
        return torch.as_tensor(self.line(inputs))


@torch.inference_mode()
def table() -> Tensor:
    """As a validation under inference_mode leaves it, which grew a table of positions."""
    return torch.ones(3)


ODD: dict[str, Callable[[], Tensor]] = {
    "an expanded mask": lambda: torch.ones(1, 3).expand(4, 3),
    "a table made under inference_mode": table,
    "an expanded one of those": lambda: table().expand(2, 3),
    "a sparse graph": lambda: torch.eye(3).to_sparse().coalesce(),
    "a sparse graph by rows": lambda: torch.eye(3).to_sparse_csr(),
    "a transposed matrix": lambda: torch.ones(3, 2).T,
}


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("name", ODD)
def test_buffers_that_torch_does_not_simply_write_to_are_as_before_after_a_refused_step(name: str, late: bool) -> None:
    model = OddBuffer(ODD[name]())
    guard = guard_of(model, AdamW(model.parameters(), fused=True))
    step = LateStepGuard(guard).step if late else guard.step
    kept = [model.get_buffer("odd").to_dense().clone()]
    for factor in (1.0, math.nan, 1.0):
        step(lambda factor=factor: model(torch.ones(1, 2)).sum() * factor)  # type: ignore[misc]
        kept.append(model.get_buffer("odd").to_dense().clone())
    assert [torch.equal(*pair) for pair in itertools.pairwise(kept)] == [False, True, False]


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
@pytest.mark.parametrize("entry", [torch.nan, complex(0.0, torch.inf)])
@pytest.mark.parametrize("layout", [torch.strided, torch.sparse_coo, torch.sparse_csr])
def test_ill_numbers_are_found_in_complex_and_in_sparse_tensors(entry: complex, layout: torch.layout) -> None:
    model = nn.Linear(2, 1)
    model.register_buffer("graph", torch.eye(2, dtype=torch.complex64).to_sparse(layout=layout))
    guard = guard_of(model)
    assert guard.first_unhealthy() is None
    graph = model.get_buffer("graph")
    entries = {torch.strided: graph.flatten, torch.sparse_coo: graph._values, torch.sparse_csr: graph.values}[layout]()
    entries[-1].fill_(entry)
    assert guard.first_unhealthy() == "model/graph"


@pytest.mark.parametrize("shares", [[0.3], [0.5, 0.5]])
def test_shares_that_do_not_fit_one_batch_are_refused(shares: list[float]) -> None:
    model = nn.Linear(2, 1)
    with pytest.raises(ConfigError, match="add up to"):
        guard_of(model).step(lambda: model(torch.ones(1, 2)).sum(), shares=shares)


@pytest.mark.parametrize("shares", [[1.5, -0.5], [0.5, 0.4], [1.0], [math.nan, 1.0]])
def test_shares_that_are_none_are_refused_in_words_and_leave_nothing(shares: list[float]) -> None:
    model = nn.Linear(2, 1)
    guard = guard_of(model)
    before = everything(guard)
    with pytest.raises(ConfigError, match="share of the batch's samples"):
        guard.step([lambda: model(torch.ones(1, 2)).sum()] * 2, shares=shares)
    assert difference(before, everything(guard)) is None


def test_no_micro_batch_at_all_is_refused_in_words() -> None:
    with pytest.raises(ConfigError, match="at least one micro-batch"):
        guard_of(nn.Linear(2, 1)).step([])


def test_a_loss_that_is_no_number_is_refused_in_words() -> None:
    model = nn.Linear(2, 1)
    with pytest.raises(ConfigError, match=r"shape \(3, 1\)"):
        guard_of(model).step(lambda: model(torch.ones(3, 2)))
