from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from failsoft.training.letters.precision import Noticing, Precision, computes_low, computing, in_precision

CPU = torch.device("cpu")


def stubborn(model: nn.Module, seen: list[torch.dtype]) -> Tensor:
    """A task that casts, makes constants, and brings float32 inputs of its own."""
    inputs = torch.ones(4, 3)
    hidden = torch.relu(model(inputs))
    scale = torch.full((4, 2), 2.0, dtype=torch.float32)
    low = (hidden * scale).float().log_softmax(-1)
    loss = nn.functional.nll_loss(low, torch.zeros(4, dtype=torch.int64))
    seen += [hidden.dtype, scale.dtype, low.dtype, loss.dtype]
    return loss


@pytest.mark.parametrize(
    ("how", "dtype"),
    [(Precision.DOUBLE, torch.float64), (Precision.SINGLE, torch.float32), (Precision.AS_TRAINED, torch.float32)],
)
def test_a_task_that_casts_and_brings_its_own_tensors_computes_in_the_asked_precision(
    how: Precision, dtype: torch.dtype
) -> None:
    model, seen = nn.Linear(3, 2), list[torch.dtype]()
    twin = in_precision(model, how)
    with computing(how, CPU, None):
        loss = stubborn(twin, seen)
    loss.backward()
    assert set(seen) == {dtype}
    assert {p.grad.dtype for p in twin.parameters() if p.grad is not None} == {dtype}
    assert all(p.grad is None and p.dtype is torch.float32 for p in model.parameters())


def test_an_autocast_inside_the_task_does_not_lower_float64() -> None:
    twin = in_precision(nn.Linear(3, 2), Precision.DOUBLE)
    with computing(Precision.DOUBLE, CPU, None), torch.autocast("cpu", dtype=torch.bfloat16):
        assert twin(torch.ones(4, 3)).dtype is torch.float64


@pytest.mark.parametrize("how", [Precision.SINGLE, Precision.DOUBLE])
def test_an_autocast_inside_the_task_is_off_within_its_functions(how: Precision) -> None:
    twin, large = in_precision(nn.Linear(3, 2), how), torch.full((4, 3), 300.0)
    with computing(how, CPU, None), torch.autocast("cpu", dtype=torch.float16):
        assert bool(torch.isfinite(twin(large) @ torch.full((2, 2), 30000.0)).all())
        assert bool(torch.isfinite(torch.mm(large, large.T)).all())  # 270000 is beyond float16


@pytest.mark.parametrize(("dtype", "low"), [(torch.float16, True), (torch.bfloat16, True), (torch.float32, False)])
def test_a_cast_or_an_autocast_of_the_tasks_own_is_noticed(dtype: torch.dtype, low: bool) -> None:
    model, noticing = nn.Linear(3, 2), Noticing()
    with noticing:
        (model(torch.ones(4, 3)).to(dtype).float().sum()).backward()
    assert noticing.low is low
    under = Noticing()
    with under, torch.autocast("cpu", dtype=dtype, enabled=low):
        model(torch.ones(4, 3)).sum()
    assert under.low is low


def test_the_runs_own_autocast_is_on_as_trained_and_off_above() -> None:
    model = nn.Linear(3, 2)
    with computing(Precision.AS_TRAINED, CPU, torch.bfloat16):
        assert model(torch.ones(4, 3)).dtype is torch.bfloat16
    with computing(Precision.SINGLE, CPU, torch.bfloat16):
        assert model(torch.ones(4, 3)).dtype is torch.float32


def test_a_model_of_half_precision_is_lifted_and_one_of_float64_is_never_lowered() -> None:
    assert next(in_precision(nn.Linear(3, 2).half(), Precision.SINGLE).parameters()).dtype is torch.float32
    assert next(in_precision(nn.Linear(3, 2).double(), Precision.SINGLE).parameters()).dtype is torch.float64


@pytest.mark.parametrize(
    ("model", "autocast", "low"),
    [
        (nn.Linear(3, 2), None, False),
        (nn.Linear(3, 2), torch.bfloat16, True),
        (nn.Linear(3, 2).to(torch.bfloat16), None, True),
    ],
)
def test_whether_training_is_below_float32_is_known(model: nn.Module, autocast: torch.dtype | None, low: bool) -> None:
    assert computes_low(model, autocast) is low


def test_gradients_in_float64_are_those_of_a_model_written_in_float64() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1))
    inputs = torch.randn(8, 3)
    lifted, written = in_precision(model, Precision.DOUBLE), in_precision(model, Precision.DOUBLE)
    with computing(Precision.DOUBLE, CPU, None):
        loss = lifted(inputs).pow(2).mean()
    loss.backward()
    written(inputs.double()).pow(2).mean().backward()
    for left, right in zip(lifted.parameters(), written.parameters(), strict=True):
        assert left.grad is not None
        assert right.grad is not None
        assert torch.equal(left.grad, right.grad)
