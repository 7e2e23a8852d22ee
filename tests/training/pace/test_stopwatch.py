from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn

from failsoft.errors import ConfigError
from failsoft.health.clock import ManualClock, SystemClock
from failsoft.training.degradation import Degradations
from failsoft.training.guard import StepGuard
from failsoft.training.loop import LoopPlan
from failsoft.training.pace.keeper import PaceKeeper
from failsoft.training.pace.policy import PacePolicy, RemedyPolicy
from failsoft.training.pace.stopwatch import Stopwatch

Compute = Callable[[], Tensor]


class Waiting:
    """Passes like DDP's: work until the last gradient, then a wait for others."""

    def __init__(self, model: nn.Module, clock: ManualClock, *, works_s: float, waits_s: float) -> None:
        self.model, self.clock, self.works_s, self.waits_s = model, clock, works_s, waits_s

    def __call__(self, compute: Compute | Sequence[Compute], shares: Sequence[float] | None) -> Tensor:
        assert callable(compute)
        loss = compute()
        self.clock.advance(self.works_s)
        loss.backward()
        self.clock.advance(self.waits_s)
        return loss


def model_of() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))


def test_the_wait_for_others_is_not_work() -> None:
    model, clock = model_of(), ManualClock()
    watch = Stopwatch(model, clock)
    passes = watch.timed(Waiting(model, clock, works_s=0.25, waits_s=60.0))
    passes(lambda: model(torch.ones(4, 2)).sum(), None)
    assert watch.take() == pytest.approx(0.25)


def test_several_updates_of_a_batch_and_its_loading_add_up_and_each_batch_begins_anew() -> None:
    model, clock = model_of(), ManualClock()
    watch = Stopwatch(model, clock)
    passes = watch.timed(Waiting(model, clock, works_s=0.25, waits_s=60.0))
    for _batch in range(2):
        watch.add(1.0)
        for _update in range(3):
            passes(lambda: model(torch.ones(4, 2)).sum(), None)
        assert watch.take() == pytest.approx(1.75)
    assert watch.take() is None


def test_a_batch_whose_last_gradient_never_came_tells_no_time() -> None:
    model, clock = model_of(), ManualClock()
    watch = Stopwatch(model, clock)
    passes = watch.timed(Waiting(model, clock, works_s=0.25, waits_s=0.0))
    passes(lambda: model(torch.ones(4, 2)).sum(), None)
    passes(lambda: torch.ones((), requires_grad=True) * 2.0, None)
    assert watch.take() is None
    with pytest.raises(RuntimeError, match="broke off"):
        passes(_breaks, None)
    assert watch.take() is None
    passes(lambda: model(torch.ones(4, 2)).sum(), None)
    assert watch.take() == pytest.approx(0.25)


def _breaks() -> Tensor:
    raise RuntimeError("broke off")


def test_a_model_that_learns_nothing_is_not_timed() -> None:
    model = model_of().requires_grad_(False)
    watch = Stopwatch(model, ManualClock())
    passes = Waiting(model, ManualClock(), works_s=0.0, waits_s=0.0)
    assert watch.timed(passes) is passes
    assert watch.take() is None


@pytest.mark.cuda
def test_on_a_device_the_time_is_the_devices_own() -> None:
    device = torch.device("cuda")
    model = nn.Sequential(nn.Linear(4096, 4096), nn.Linear(4096, 4096)).to(device)
    watch = Stopwatch(model, SystemClock())

    def passes(compute: Compute | Sequence[Compute], _shares: Sequence[float] | None) -> Tensor:
        assert callable(compute)
        loss = compute()
        loss.backward()
        return loss

    timed = watch.timed(passes)
    for _ in range(3):
        timed(lambda: model(torch.ones(4096, 4096, device=device)).sum(), None)
        torch.cuda.synchronize()
        took_s = watch.take()
        assert took_s is not None
        assert 0.0 < took_s < 10.0


def test_shares_may_differ_only_where_the_guard_holds_the_wrapper() -> None:
    model = model_of()
    guard = StepGuard(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(ConfigError, match="DDP wrapper"):
        PaceKeeper(
            guard,
            ManualClock(),
            global_batch=8,
            policy=PacePolicy(),
            remedy=RemedyPolicy(),
            degradations=Degradations(lambda kind, why, **data: None),
        )


def test_a_remedy_without_a_look_is_refused() -> None:
    with pytest.raises(ConfigError, match="pace is None"):
        LoopPlan(total_batches=1, seed=0, pace=None, pace_remedy=RemedyPolicy())
