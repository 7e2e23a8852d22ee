from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from failsoft.errors import NoSnapshotError
from failsoft.training.guard import StepGuard
from failsoft.training.snapshots.snapshot import RamSnapshots
from failsoft.training.state import TrainingState, flatten
from tests.training.toys import same, toy_data, toy_model, weights_of


def trainee() -> tuple[TrainingState, StepGuard]:
    model = toy_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=20)
    state = TrainingState(model=model, optimizer=optimizer, scheduler=scheduler)
    return state, StepGuard(model=model, optimizer=optimizer, scheduler=scheduler)


def train(state: TrainingState, guard: StepGuard, steps: int) -> None:
    for _ in range(steps):
        guard.step(lambda: guard.model(toy_data()[0]).square().mean())
        state.position, state.step = state.position + 1, state.step + 1


def test_a_rollback_before_the_first_snapshot_says_so() -> None:
    state, _ = trainee()
    with pytest.raises(NoSnapshotError, match="take one before the first step"):
        RamSnapshots(state).restore()


def test_going_back_and_training_again_gives_the_same_weights_bit_for_bit() -> None:
    state, guard = trainee()
    train(state, guard, 3)
    snapshots = RamSnapshots(state)
    snapshots.take()
    train(state, guard, 4)
    first, rate = weights_of(state.model), state.optimizer.param_groups[0]["lr"]
    mark = snapshots.restore()
    assert (mark.position, mark.step, state.step) == (3, 3, 3)
    train(state, guard, 4)
    assert same(first, weights_of(state.model))
    assert state.optimizer.param_groups[0]["lr"] == rate
    snapshots.restore()  # a snapshot can be gone back to again and again
    train(state, guard, 4)
    assert same(first, weights_of(state.model))


def test_a_snapshot_of_an_ill_state_does_not_replace_the_healthy_one() -> None:
    state, guard = trainee()
    train(state, guard, 2)
    healthy = weights_of(state.model)
    snapshots = RamSnapshots(state)
    assert snapshots.take() is None
    train(state, guard, 2)
    with torch.no_grad():
        next(state.model.parameters())[0, 0] = torch.nan
    assert snapshots.take() == "model/0.weight"
    assert snapshots.take() == "model/0.weight"
    snapshots.restore()
    assert same(healthy, weights_of(state.model))


def test_a_snapshot_before_the_first_step_forgets_the_moments() -> None:
    state, guard = trainee()
    snapshots = RamSnapshots(state)
    snapshots.take()
    train(state, guard, 2)
    snapshots.restore()
    assert not state.optimizer.state_dict()["state"]


def test_two_buffers_are_reused_and_no_more_memory_is_taken() -> None:
    state, guard = trainee()
    snapshots = RamSnapshots(state)
    train(state, guard, 1)
    held = []
    for _ in range(4):
        snapshots.take()
        held.append(snapshots.held_bytes)
        train(state, guard, 1)
    one = sum(tensor.nbytes for tensor in flatten(state).tensors.values())
    assert held == [one, 2 * one, 2 * one, 2 * one]


def drawn() -> tuple[list[float], list[float], int]:
    numpy_says = np.random.rand(3).tolist()  # noqa: NPY002 -- the generator that foreign code draws from
    return torch.rand(3).tolist(), numpy_says, random.getrandbits(64)


def test_all_generators_of_the_process_come_back_again_and_again() -> None:
    state, _ = trainee()
    snapshots = RamSnapshots(state)
    snapshots.take()
    first = drawn()
    assert drawn() != first
    for _ in range(2):
        snapshots.restore()
        assert drawn() == first
