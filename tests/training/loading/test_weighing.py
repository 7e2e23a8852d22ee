from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from failsoft.training.batches import GlobalBatches
from failsoft.training.loading.checked import Checked
from failsoft.training.loading.checks import SampleChecks
from failsoft.training.loading.collate import Fill
from failsoft.training.loading.order import RankOrder
from failsoft.training.loading.sample import GuardedBatch, Request
from failsoft.training.loading.weighing import rank_weight, weighted_mean
from failsoft.training.ranks import SoloRank
from tests.training.loading.data import RowData, row_of

SIZE, BATCH = 40, 12
CHECKS = SampleChecks(like=RowData(1)[0])
WORLDS = st.integers(1, 5)
FAULTS = st.dictionaries(st.integers(0, SIZE - 1), st.sampled_from(["raises", "nan", "shape", "stands in"]))


class OneOf(SoloRank):
    """One rank of several whose sum is known."""

    def __init__(self, world: int, total: float) -> None:
        self.world = world
        self._total = total

    def sum_(self, values: Tensor) -> Tensor:
        return values.fill_(self._total)


def model_of() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1)).double()


def losses_of(model: nn.Module, batch: GuardedBatch) -> Tensor:
    found: Tensor = (model(batch.data["x"]).squeeze(1) - batch.data["y"]) ** 2
    return found


def batches_of(faults: dict[int, str], world: int, position: int, fill: Fill = Fill.COPY) -> list[GuardedBatch]:
    batches = GlobalBatches(num_samples=SIZE, global_batch=BATCH, seed=5)
    orders = [RankOrder(batches=batches, rank=rank, world=world, total=100) for rank in range(world)]
    return [
        Checked(RowData(SIZE, faults), checks=CHECKS, fill=fill, reserve=order.reserve).load(
            order.ask(Request(position))
        )
        for order in orders
    ]


def gradients(model: nn.Module) -> list[Tensor]:
    return [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in model.parameters()]


@settings(max_examples=40)
@given(faults=FAULTS, world=WORLDS, position=st.integers(0, 7), fill=st.sampled_from(Fill))
def test_the_ranks_mean_gradient_is_that_of_the_global_batch_without_its_bad_and_synthetic_samples(
    faults: dict[int, str], world: int, position: int, fill: Fill
) -> None:
    shares, averaged = batches_of(faults, world, position, fill), model_of()
    total = sum(share.real for share in shares)
    for share in (share for share in shares if share.data is not None):
        weight = rank_weight(OneOf(world, total), share.real)
        assert (weight is None) == (total == 0)
        (weighted_mean(losses_of(averaged, share), share.weights_B) * (weight or 0.0) / world).backward()
    whole = GlobalBatches(num_samples=SIZE, global_batch=BATCH, seed=5).global_indices(position).tolist()
    good = [index for index in whole if index not in faults]
    assert total == len(good)
    alone = model_of()
    if good:
        rows = torch.stack([row_of(index) for index in good])
        ((alone(rows).squeeze(1) - rows.sum(1)) ** 2).mean().backward()
    for ours, theirs in zip(gradients(averaged), gradients(alone), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-12)


@settings(max_examples=60)
@given(faults=FAULTS, worlds=st.tuples(WORLDS, WORLDS), killed_at=st.integers(0, 3))
def test_each_good_sample_counts_once_an_epoch_whatever_is_bad_and_wherever_the_run_is_killed_and_resized(
    faults: dict[int, str], worlds: tuple[int, int], killed_at: int
) -> None:
    counted: list[int] = []
    for position in range(4):  # an epoch of 40 in batches of 12; what was computed before a kill is not part of the run
        for share in batches_of(faults, worlds[0] if position < killed_at else worlds[1], position):
            pairs = zip(share.rows, share.weights, strict=True)
            counted += [share.indices[place] for place, weight in pairs if weight]
    assert sorted(counted) == [index for index in range(SIZE) if index not in faults]


@settings(max_examples=20)
@given(faults=FAULTS, world=st.integers(1, 4))
def test_the_same_request_is_the_same_batch_in_any_process(faults: dict[int, str], world: int) -> None:
    first, second = batches_of(faults, world, 1), batches_of(faults, world, 1)
    for ours, theirs in zip(first, second, strict=True):
        assert (ours.rows, ours.weights, ours.bad) == (theirs.rows, theirs.weights, theirs.bad)
        assert (ours.data is None) == (theirs.data is None)
        if ours.data is not None:
            assert torch.equal(ours.data["x"], theirs.data["x"])


def test_a_row_without_weight_adds_nothing_to_the_loss_even_if_its_own_is_nan() -> None:
    losses, weights = torch.tensor([1.0, float("nan"), 3.0]), torch.tensor([1.0, 0.0, 1.0])
    assert weighted_mean(losses, weights).item() == 2.0
    nothing = weighted_mean(torch.ones(2, requires_grad=True), torch.zeros(2))
    assert nothing.item() == 0.0
    assert nothing.requires_grad


@pytest.mark.parametrize(("real", "total", "weight"), [(3, 10, 0.6), (0, 10, 0.0), (0, 0, None)])
def test_a_rank_weighs_as_much_as_it_has_real_samples(real: int, total: int, weight: float | None) -> None:
    assert rank_weight(OneOf(2, total), real) == weight


def test_ranks_without_a_share_of_a_short_batch_count_nothing() -> None:
    batches = GlobalBatches(num_samples=13, global_batch=12, seed=5)  # the last batch holds one sample
    shares = []
    for rank in range(3):
        order = RankOrder(batches=batches, rank=rank, world=3, total=10)
        shares.append(Checked(RowData(13)).load(order.ask(Request(1))))
    assert [share.real for share in shares] == [1, 0, 0]
    assert len({share.indices for share in shares}) == 1
