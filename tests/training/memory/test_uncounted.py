"""Samples in which nothing counts: the mean over them is NaN, and they may take nobody else's gradient with them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from failsoft.training.guard import GuardPolicy, StepGuard
from failsoft.training.memory.batch import Batch
from failsoft.training.memory.micro_batches import Indices
from failsoft.training.memory.net import MemoryNet
from failsoft.training.memory.rungs import MemoryPolicy
from failsoft.training.ranks import SoloRank
from failsoft.training.verdict import Refusal

LABELS = torch.tensor([[0, 1, 2], [1, 1, -100], [-100] * 3, [2, -100, -100], [-100] * 3, [0, 0, 1]])
WHOLE = np.arange(6, dtype=np.int64)
EMPTY = np.asarray([2, 4], dtype=np.int64)


class Tokens:
    """The mean over labelled tokens, as torch's cross entropy has it: NaN where there are none."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Linear(4, 3).double()
        self.inputs = torch.randn(6, 3, 4, dtype=torch.float64)

    def loss(self, indices: Indices) -> Tensor:
        rows = torch.from_numpy(indices)
        return nn.functional.cross_entropy(self.model(self.inputs[rows]).flatten(0, 1), LABELS[rows].flatten())

    def weight(self, indices: Indices) -> float:
        return float((LABELS[torch.from_numpy(indices)] >= 0).sum())


class SecondOfTwo(SoloRank):
    """A rank whose fellow is not there; nothing that it does here needs one."""

    rank, world = 1, 2


def net_of(task: Tokens, ranks: SoloRank) -> MemoryNet:
    guard = StepGuard(
        model=task.model,
        optimizer=torch.optim.AdamW(task.model.parameters(), lr=0.1),
        ranks=ranks,
        policy=GuardPolicy(max_grad_norm=None),
    )
    return MemoryNet(guard=guard, policy=MemoryPolicy(), task=task, global_batch=6)


@pytest.mark.parametrize("notches", [2, 3, 4])
def test_pieces_without_a_token_that_counts_leave_the_gradient_the_batchs(notches: int) -> None:
    task, whole = Tokens(), Tokens()
    net = net_of(task, SoloRank())
    for _ in range(notches):
        net.ladder.ran_out("no memory")
    outcome = net.step(Batch(position=1, whole=WHOLE, loss=task.loss))
    whole.loss(WHOLE).backward()
    assert outcome.applied
    for got, wanted in zip(task.model.parameters(), whole.model.parameters(), strict=True):
        torch.testing.assert_close(got.grad, wanted.grad, rtol=1e-6, atol=1e-12)


def test_a_rank_whose_samples_hold_no_token_that_counts_brings_a_gradient_of_nought() -> None:
    task = Tokens()
    batch = np.asarray([0, 2, 1, 4], dtype=np.int64)  # of these the second rank gets 2 and 4
    outcome = net_of(task, SecondOfTwo()).step(Batch(position=1, whole=batch, loss=task.loss))
    assert outcome.applied
    assert outcome.sample_ids == (2, 4)
    assert all(not torch.as_tensor(parameter.grad).any() for parameter in task.model.parameters())


def test_a_batch_in_which_nothing_counts_is_no_update_and_says_nothing_against_the_state() -> None:
    task = Tokens()
    before = [parameter.clone() for parameter in task.model.parameters()]
    outcome = net_of(task, SoloRank()).step(Batch(position=1, whole=EMPTY, loss=task.loss))
    assert outcome.refusal is Refusal.NO_SAMPLE
    assert all(map(torch.equal, task.model.parameters(), before))
