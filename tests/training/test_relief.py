from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.optim import SGD, AdamW, Optimizer
from torch.optim import lr_scheduler as schedule

from failsoft.errors import ConfigError
from failsoft.training.guard import GuardPolicy, StepGuard
from failsoft.training.relief import Relief, ReliefPolicy

POLICY = ReliefPolicy(factor_per_refusal=0.5, min_factor=0.05, recovery_steps=10)


def test_each_refusal_halves_the_factor_down_to_its_floor() -> None:
    relief, factors = Relief(POLICY), list[float]()
    for _ in range(6):
        relief.refused()
        factors.append(relief.factor)
    assert factors == [0.5, 0.25, 0.125, 0.0625, 0.05, 0.05]


def test_the_full_rate_is_back_after_the_recovery_steps_and_not_before() -> None:
    relief = Relief(POLICY)
    relief.refused()
    factors = []
    for _ in range(11):
        relief.applied()
        factors.append(relief.factor)
    assert factors[8] == pytest.approx(0.95)
    assert factors[9:] == [1.0, 1.0]


def test_without_a_policy_refusals_change_nothing_and_a_rollback_still_may() -> None:
    relief = Relief()
    relief.refused()
    assert relief.factor == 1.0
    relief.lower(0.5)
    assert relief.factor == 0.5


@settings(max_examples=200, deadline=None)
@given(events=st.lists(st.sampled_from(["refused", "applied", "lower"]), max_size=60))
def test_the_factor_stays_between_its_floor_and_1_and_a_saved_one_goes_on_alike(events: list[str]) -> None:
    relief, resumed = Relief(POLICY), Relief(POLICY)
    for event in events:
        for one in (relief, resumed):
            if event == "lower":
                one.lower(0.3)
            else:
                getattr(one, event)()
        assert POLICY.min_factor <= relief.factor <= 1.0
        state = resumed.state_dict()
        resumed = Relief(POLICY)
        resumed.load_state_dict(state)
        assert resumed.factor == relief.factor


SCHEDULERS: dict[str, Callable[[Optimizer], schedule.LRScheduler]] = {
    "exponential": lambda o: schedule.ExponentialLR(o, gamma=0.9),
    "cosine": lambda o: schedule.CosineAnnealingLR(o, T_max=10),
    "one cycle": lambda o: schedule.OneCycleLR(o, max_lr=0.1, total_steps=40),
    "chained": lambda o: schedule.ChainedScheduler(
        [schedule.ExponentialLR(o, gamma=0.9), schedule.ConstantLR(o, factor=0.5, total_iters=3)]
    ),
}


@pytest.mark.parametrize("name", sorted(SCHEDULERS))
def test_schedulers_that_work_from_the_current_rate_never_see_the_relief(name: str) -> None:
    rates = []
    for relief in (POLICY, None):
        model = nn.Linear(2, 1)
        optimizer = SGD(model.parameters(), lr=0.1)
        used: list[float] = []
        optimizer.register_step_pre_hook(lambda one, *_, used=used: used.append(one.param_groups[0]["lr"]))
        guard = StepGuard(
            model=model,
            optimizer=optimizer,
            scheduler=SCHEDULERS[name](optimizer),
            policy=GuardPolicy(relief=relief),
        )
        planned = []
        for number in range(12):
            planned.append(optimizer.param_groups[0]["lr"])
            factor = math.nan if number == 3 else 1.0
            guard.step(lambda model=model, factor=factor: model(torch.ones(1, 2)).sum() * factor)  # type: ignore[misc]
        rates.append((planned, used))
    (planned, used), (expected, full) = rates
    assert planned == expected
    assert used[:3] == full[:3]
    assert used[3] == pytest.approx(full[3] * 0.5)
    assert used[4] == pytest.approx(full[4] * 0.55)


def test_every_group_has_its_own_rate_back_even_when_the_step_raises() -> None:
    model = nn.Linear(2, 1)
    rate = torch.tensor(0.2)
    groups = [{"params": [model.weight], "lr": rate}, {"params": [model.bias], "lr": 0.3}]
    optimizer, relief = AdamW(groups, fused=True), Relief(POLICY)
    relief.refused()
    inside: list[float] = []

    def fail() -> None:
        with relief.lowered(optimizer):
            inside.extend(float(group["lr"]) for group in optimizer.param_groups)
            raise InterruptedError

    with pytest.raises(InterruptedError):
        fail()
    assert inside == pytest.approx([0.1, 0.15])
    assert optimizer.param_groups[0]["lr"] is rate
    assert [float(rate), optimizer.param_groups[1]["lr"]] == pytest.approx([0.2, 0.3])


@pytest.mark.parametrize("factor", [0.0, -1.0, 1.5, math.nan])
def test_a_relief_that_raises_or_stops_the_learning_is_refused(factor: float) -> None:
    with pytest.raises(ConfigError, match="factor is"):
        Relief(POLICY).lower(factor)


@pytest.mark.parametrize(
    "wrong", [{"factor_per_refusal": 0.0}, {"factor_per_refusal": 1.1}, {"min_factor": 0.0}, {"recovery_steps": 0}]
)
def test_policies_that_raise_or_stop_the_learning_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        ReliefPolicy(**wrong)  # type: ignore[arg-type]
