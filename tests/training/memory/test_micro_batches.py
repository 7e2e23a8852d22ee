from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from failsoft.errors import ConfigError
from failsoft.training.guard import GuardPolicy, StepGuard
from failsoft.training.memory.batch import Batch
from failsoft.training.memory.micro_batches import (
    AddsUp,
    Indices,
    TaskWeighs,
    cut,
    distortions,
    piece_size,
    rank_weight,
    shares_of,
    weigher,
)
from failsoft.training.memory.net import MemoryNet
from failsoft.training.memory.rungs import MemoryPolicy

SAMPLES = 11
UNCLIPPED = GuardPolicy(max_grad_norm=None)
LENGTHS = torch.tensor([5, 1, 9, 2, 2, 7, 1, 3, 8, 4, 6])


def samples(count: int) -> Indices:
    return np.arange(count, dtype=np.int64)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1)).double()


class PerSample:
    """The mean over samples."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.inputs = torch.randn(SAMPLES, 9, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def errors(self, indices: Indices) -> Tensor:
        errors: Tensor = self.model(self.inputs[torch.from_numpy(indices)]).squeeze(-1) - 1.0
        return errors.square()

    def loss(self, indices: Indices) -> Tensor:
        return self.errors(indices).mean()


class PerToken(PerSample):
    """The mean over tokens, of which samples have one to nine."""

    def mask(self, indices: Indices) -> Tensor:
        return torch.arange(9) < LENGTHS[torch.from_numpy(indices)].unsqueeze(1)

    def loss(self, indices: Indices) -> Tensor:
        return self.errors(indices)[self.mask(indices)].mean()

    def weight(self, indices: Indices) -> float:
        return float(LENGTHS[torch.from_numpy(indices)].sum())


class PerBoth(PerToken):
    """The mean over samples of their first token, and the one over all tokens."""

    def loss(self, indices: Indices) -> Tensor:
        return self.errors(indices)[:, 0].mean() + super().loss(indices)

    def partial_loss(self, piece: Indices, whole: Indices) -> Tensor:
        first = self.errors(piece)[:, 0].sum() / len(whole)
        return first + self.errors(piece)[self.mask(piece)].sum() / self.weight(whole)


@given(count=st.integers(1, 200), micro_batches=st.integers(1, 250))
def test_pieces_make_up_the_whole_in_order_and_only_the_last_is_smaller(count: int, micro_batches: int) -> None:
    size = piece_size(count, micro_batches)
    pieces = cut(samples(count), size)
    assert np.concatenate(pieces).tolist() == list(range(count))
    assert len(pieces) <= micro_batches
    assert all(len(piece) == size for piece in pieces[:-1])
    assert 1 <= len(pieces[-1]) <= size


def test_a_last_piece_that_would_be_too_small_goes_to_the_one_before() -> None:
    sizes = [[len(piece) for piece in cut(samples(count), 2, least=2)] for count in (1, 2, 3, 4, 7)]
    assert sizes == [[1], [2], [3], [2, 2], [2, 2, 3]]


@given(weights=st.lists(st.floats(0.0, 1e6, allow_nan=False), min_size=1, max_size=30), size=st.integers(1, 7))
def test_shares_add_up_to_one_and_are_as_the_weights(weights: list[float], size: int) -> None:
    pieces = cut(samples(len(weights)), size)
    shares = shares_of(pieces, lambda piece: math.fsum(weights[index] for index in piece))
    assert math.isclose(math.fsum(shares), 1.0, rel_tol=1e-12)
    assert min(shares) >= 0.0
    if (total := math.fsum(weights)) > 1e-3:
        for piece, share in zip(pieces, shares, strict=True):
            assert math.isclose(share * total, math.fsum(weights[i] for i in piece), rel_tol=1e-9, abs_tol=1e-9)


@given(world=st.integers(1, 9), count=st.integers(1, 40))
def test_the_weights_of_ranks_make_their_mean_the_mean_over_samples(world: int, count: int) -> None:
    whole, values = samples(count), np.random.default_rng(count).normal(size=count)
    parts = [whole[rank::world] for rank in range(world)]
    weights = [rank_weight(part, whole, world, len) or 0.0 for part in parts]
    means = [values[part].mean() if len(part) else 0.0 for part in parts]
    mean = math.fsum(weight * own for weight, own in zip(weights, means, strict=True))
    assert math.isclose(mean / world, values.mean(), rel_tol=1e-9, abs_tol=1e-12)


@pytest.mark.parametrize("kind", [PerSample, PerToken, PerBoth])
@pytest.mark.parametrize("micro_batches", [2, 3, 5, 11])
def test_gradients_of_pieces_add_up_to_the_whole_batchs(kind: type[PerSample], micro_batches: int) -> None:
    whole_model, model = network(), network()
    kind(whole_model).loss(samples(SAMPLES)).backward()
    task, policy = kind(model), MemoryPolicy(max_micro_batches=micro_batches)
    guard = StepGuard(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.0), policy=UNCLIPPED)
    net = MemoryNet(guard=guard, policy=policy, task=task, global_batch=SAMPLES)
    while net.ladder.setting.micro_batches < micro_batches:
        net.ladder.ran_out("no memory")
    sizes: list[int] = []

    def watched(indices: Indices) -> Tensor:
        sizes.append(len(indices))
        return task.loss(indices)

    adds_up = task.partial_loss if isinstance(task, AddsUp) else None
    outcome = net.step(Batch(position=1, whole=samples(SAMPLES), loss=watched, partial_loss=adds_up))
    assert outcome.applied
    assert adds_up is not None or len(sizes) > 1
    for got, wanted in zip(model.parameters(), whole_model.parameters(), strict=True):
        torch.testing.assert_close(got.grad, wanted.grad, rtol=1e-6, atol=1e-12)
    assert outcome.loss == pytest.approx(kind(whole_model).loss(samples(SAMPLES)).item(), rel=1e-9)


def test_token_means_without_a_word_of_their_weights_would_not_add_up() -> None:
    """What the protocol is for: pieces counted by samples give another gradient."""
    task, halves = PerToken(network()), cut(samples(SAMPLES), 6)
    losses = [task.loss(piece).item() for piece in halves]
    by_samples, by_tokens = (float(np.dot(shares_of(halves, weigh), losses)) for weigh in (len, weigher(task)))
    exact = task.loss(samples(SAMPLES)).item()
    assert by_tokens == pytest.approx(exact, rel=1e-12)
    assert abs(by_samples - exact) > 1e-4 * exact


def test_a_task_that_weighs_samples_impossibly_is_told_so() -> None:
    with pytest.raises(ConfigError, match="how many tokens"):
        shares_of(cut(samples(3), 1), lambda _piece: math.nan)


def test_a_protocol_is_met_by_its_methods_alone() -> None:
    assert isinstance(PerToken(network()), TaskWeighs)
    assert not isinstance(PerSample(network()), TaskWeighs)
    assert isinstance(PerBoth(network()), AddsUp)


def test_what_pieces_change_about_a_model_is_said() -> None:
    assert distortions(network()) == []
    said = distortions(nn.Sequential(nn.BatchNorm1d(3), nn.Dropout(0.1)))
    assert len(said) == 2
    assert distortions(nn.Sequential(nn.LayerNorm(3), nn.Dropout(0.0))) == []


def test_a_piece_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least one sample"):
        cut(samples(3), 0)
