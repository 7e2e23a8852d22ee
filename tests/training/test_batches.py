from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from failsoft.errors import ConfigError
from failsoft.training.batches import GlobalBatches

SIZES = st.integers(min_value=1, max_value=3000)
SEEDS = st.integers(min_value=0, max_value=2**32)


def epoch_of(batches: GlobalBatches, epoch: int) -> list[int]:
    first = epoch * batches.batches_per_epoch
    positions = range(first, first + batches.batches_per_epoch)
    return [int(i) for position in positions for i in batches.global_indices(position)]


@given(size=SIZES, batch=st.integers(min_value=1, max_value=400), seed=SEEDS, epoch=st.integers(0, 50))
def test_each_epoch_is_a_permutation_of_all_samples(size: int, batch: int, seed: int, epoch: int) -> None:
    batches = GlobalBatches(num_samples=size, global_batch=batch, seed=seed)
    assert sorted(epoch_of(batches, epoch)) == list(range(size))


@given(size=SIZES, batch=st.integers(1, 100), seed=SEEDS, position=st.integers(0, 10_000), world=st.integers(1, 9))
def test_the_shares_of_all_ranks_make_up_the_batch_and_overlap_nowhere(
    size: int, batch: int, seed: int, position: int, world: int
) -> None:
    batches = GlobalBatches(num_samples=size, global_batch=batch, seed=seed)
    shares = [batches.indices(position, rank, world) for rank in range(world)]
    assert sorted(np.concatenate(shares).tolist()) == sorted(batches.global_indices(position).tolist())
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize("worlds", [(1, 2), (4, 3), (3, 1)])
def test_a_resize_in_mid_epoch_loses_no_sample_and_repeats_none(worlds: tuple[int, int]) -> None:
    batches = GlobalBatches(num_samples=16, global_batch=4, seed=1)
    world_at = [worlds[0], *[worlds[1]] * 3]
    seen = [
        int(i)
        for position, world in enumerate(world_at)
        for rank in range(world)
        for i in batches.indices(position, rank, world)
    ]
    assert sorted(seen) == list(range(16))


@settings(max_examples=25)
@given(stops=st.lists(st.integers(0, 59), max_size=6))
def test_the_ids_after_any_number_of_resumes_are_those_of_the_undisturbed_run(stops: list[int]) -> None:
    batches = GlobalBatches(num_samples=100, global_batch=5, seed=9)
    undisturbed = [batches.global_indices(position).tolist() for position in range(60)]
    edges = [0, *sorted(stops), 60]
    resumed = []
    for begin, end in pairwise(edges):
        anew = GlobalBatches(num_samples=100, global_batch=5, seed=9)  # a new process knows nothing but the position
        resumed += [anew.global_indices(position).tolist() for position in range(begin, end)]
    assert resumed == undisturbed


def test_epochs_and_seeds_differ_in_order() -> None:
    batches = GlobalBatches(num_samples=500, global_batch=50, seed=1)
    other = GlobalBatches(num_samples=500, global_batch=50, seed=2)
    assert epoch_of(batches, 0) != epoch_of(batches, 1)
    assert epoch_of(batches, 0) != epoch_of(other, 0)


def test_the_order_looks_random() -> None:
    order = np.array(epoch_of(GlobalBatches(num_samples=20_000, global_batch=1000, seed=4), 0))
    assert abs(np.corrcoef(order, np.arange(20_000))[0, 1]) < 0.03
    assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 0.03


def test_a_batch_of_a_billion_samples_needs_no_list_of_them() -> None:
    batches = GlobalBatches(num_samples=10**9, global_batch=300, seed=1)
    last = batches.global_indices(batches.batches_per_epoch - 1)
    assert len(last) == 10**9 % 300
    assert ((last >= 0) & (last < 10**9)).all()


def test_impossible_sizes_are_refused_in_words() -> None:
    with pytest.raises(ConfigError, match="num_samples is 0"):
        GlobalBatches(num_samples=0, global_batch=4, seed=1)
    with pytest.raises(ConfigError, match="rank is 2 in a world of 2"):
        GlobalBatches(num_samples=8, global_batch=4, seed=1).indices(0, 2, 2)
