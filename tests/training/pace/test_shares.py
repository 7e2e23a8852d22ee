from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from failsoft.errors import ConfigError
from failsoft.training.pace.shares import FULL, even, in_words, part, sizes

SHARES = st.lists(st.integers(1, FULL), min_size=1, max_size=9)


@given(count=st.integers(0, 300), shares=SHARES)
def test_every_sample_lies_on_exactly_one_rank(count: int, shares: list[int]) -> None:
    whole = np.arange(1000, 1000 + count)
    parts = [part(whole, shares, rank) for rank in range(len(shares))]
    assert sorted(np.concatenate(parts).tolist()) == whole.tolist()


@given(count=st.integers(0, 300), shares=SHARES)
def test_parts_are_as_large_as_the_shares_to_one_sample_and_nobody_is_left_without(
    count: int, shares: list[int]
) -> None:
    each = sizes(count, shares)
    assert sum(each) == count
    wanted = [count * share / sum(shares) for share in shares]
    starved = sum(one < 1.0 for one in wanted)
    for one, size in zip(wanted, each, strict=True):
        assert abs(one - size) < 1.0 + (starved if count >= len(shares) else 0)
    if count >= len(shares):
        assert min(each) >= 1


@given(count=st.integers(0, 100), world=st.integers(1, 8), share=st.integers(1, FULL))
def test_equal_shares_are_the_plain_division(count: int, world: int, share: int) -> None:
    whole = np.arange(count)
    for rank in range(world):
        assert part(whole, (share,) * world, rank).tolist() == whole[rank::world].tolist()


@given(shares=SHARES, seed=st.integers(0, 2**16))
def test_the_gradient_of_uneven_shares_is_that_of_the_whole_batch(shares: list[int], seed: int) -> None:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).double()
    inputs, targets = torch.randn(24, 4).double(), torch.randn(24, 1).double()
    world, whole = len(shares), np.arange(24)
    model.zero_grad()
    nn.functional.mse_loss(model(inputs), targets).backward()
    wanted = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    model.zero_grad()
    for rank in range(world):
        mine = part(whole, shares, rank)
        weight = len(mine) * world / len(whole)
        loss = nn.functional.mse_loss(model(inputs[mine]), targets[mine])
        (loss * weight / world).backward()  # what DDP's mean over the ranks makes of it
    for parameter, gradient in zip(model.parameters(), wanted, strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-6, atol=1e-12)


def test_shares_are_said_in_words() -> None:
    assert in_words(even(3)) == "even"
    assert in_words((16, 8, 4)) == "rank 1 has 8/16, rank 2 has 4/16"


@pytest.mark.parametrize("shares", [(), (0, 16), (16, -1)])
def test_a_share_of_nothing_is_refused(shares: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="1 or more sixteenths"):
        sizes(8, shares)


def test_a_rank_beyond_the_shares_is_refused() -> None:
    with pytest.raises(ConfigError, match="rank is 2"):
        part(np.arange(4), (16, 16), 2)
