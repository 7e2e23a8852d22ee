"""What a rank holds of a sharded tensor, for every rank of meshes that no test machine has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
import torch.distributed as dist
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.placement_types import Placement
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.testing._internal.distributed.fake_pg import FakeStore

from failsoft.errors import ConfigError
from failsoft.training.boxes import Piece, refuse_gaps
from failsoft.training.sharding import Shard as Held
from failsoft.training.sharding import has_shards, here, like, settled, shard_of
from failsoft.training.state import FlatState, TrainingState, flatten, unflatten


@contextmanager
def pretended(rank: int, world: int) -> Iterator[None]:
    """A process group that talks to nobody."""
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
    try:
        yield
    finally:
        dist.destroy_process_group()


def share(size: int, ranks: int, rank: int) -> int:
    full = -(-size // ranks)
    return max(0, min(full, size - rank * full))


def made(shape: tuple[int, ...], mesh: tuple[int, ...], placements: list[Placement]) -> Tensor:
    """This rank's part of a tensor, over memory of its own."""
    device = init_device_mesh("cpu", mesh)
    coordinate = list(device.get_coordinate() or ())
    local = list(shape)
    for place, ranks, how in zip(coordinate, mesh, placements, strict=True):
        if isinstance(how, Shard):
            local[how.dim] = share(local[how.dim], ranks, place)
    stride = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(
        torch.zeros(local), device, placements, run_check=False, shape=torch.Size(shape), stride=stride
    )


@st.composite
def laid_out(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], list[Placement]]:
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)))
    mesh = tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=2)))
    kinds: st.SearchStrategy[Placement] = st.one_of(st.just(Replicate()), st.integers(0, len(shape) - 1).map(Shard))
    return shape, mesh, [draw(kinds) for _ in mesh]


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(laid_out())
def test_on_any_mesh_the_pieces_that_are_written_are_the_tensor(
    layout: tuple[tuple[int, ...], tuple[int, ...], list[Placement]],
) -> None:
    shape, mesh, placements = layout
    pieces: list[Piece] = []
    for rank in range(torch.Size(mesh).numel()):
        with pretended(rank, torch.Size(mesh).numel()):
            tensor = made(shape, mesh, placements)
            shard = shard_of("w", tensor)
            assert shard is not None
            assert Held.from_plain(shard.to_plain()) == shard
            assert tuple(here(tensor).shape) == shard.box.size
            pieces += [Piece(file=rank, box=shard.box)] if shard.first and shard.box.numel else []
    refuse_gaps(shape, pieces, name="w")


def test_what_is_held_here_shares_its_memory_and_a_moment_lies_as_its_parameter() -> None:
    with pretended(1, 2):
        parameter = made((5, 2), (2,), [Shard(0)])
        local = here(parameter)
        local.fill_(7.0)
        assert here(parameter).sum() == 7.0 * 2 * 2
        moment = like(parameter, torch.ones(2, 2))
        assert (tuple(moment.shape), shard_of("m", moment)) == ((5, 2), shard_of("w", parameter))


def test_an_average_of_weights_that_lies_in_shards_goes_into_a_flat_state_and_back() -> None:
    with pretended(1, 2):
        model = nn.Sequential(nn.Linear(4, 7), nn.Linear(7, 1))
        average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))  # torch can't copy it once it is cut
        for each in (model, average.module):
            fully_shard(each)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        state = TrainingState(model=model, optimizer=optimizer, ema=average)
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        average.update_parameters(model)
        flat = flatten(state)
        kept = FlatState(tensors={name: one.clone() for name, one in flat.tensors.items()}, scalars=dict(flat.scalars))
        assert {"ema/module.0.weight", "model/0.weight", "optimizer/0/exp_avg"} <= kept.shards.keys()
        assert "optimizer/0/step" not in kept.shards
        with torch.no_grad():
            for parameter in (*model.parameters(), *average.parameters()):
                parameter.zero_()
        optimizer.state.clear()
        unflatten(kept, state, with_breaker=True)
        again = flatten(state)
        assert [name for name, one in kept.tensors.items() if not torch.equal(one, again.tensors[name])] == []
        assert again.shards == kept.shards


def test_an_average_that_was_just_looked_at_is_kept_and_restored_by_its_shards() -> None:
    with pretended(1, 2):
        model = nn.Sequential(nn.Linear(4, 7), nn.Linear(7, 1))
        average = AveragedModel(model)
        for each in (model, average.module):
            fully_shard(each)
        state = TrainingState(model=model, optimizer=torch.optim.SGD(model.parameters()), ema=average)
        kept = flatten(state)
        kept = FlatState(tensors={name: one.clone() for name, one in kept.tensors.items()}, scalars=kept.scalars)
        with torch.no_grad():
            average(torch.zeros(2, 4))
        assert not has_shards(average.module)  # torch leaves the outermost part whole for a backward pass
        assert flatten(state).shards == kept.shards
        with torch.no_grad():
            for parameter in average.parameters():
                parameter.zero_()
            average(torch.zeros(2, 4))
        flatten(state)
        unflatten(kept, state, with_breaker=True)
        again = flatten(state).tensors
        assert [name for name, one in kept.tensors.items() if not torch.equal(one, again[name])] == []


def test_a_part_of_a_sum_is_refused() -> None:
    with pretended(0, 2), pytest.raises(ConfigError, match="w is only a part of a sum"):
        shard_of("w", made((4,), (2,), [Partial()]))


def test_a_plain_tensor_is_nobody_s_shard() -> None:
    assert shard_of("w", torch.zeros(3)) is None
    assert not has_shards(nn.Linear(2, 2))


def test_the_older_wrapper_is_refused_instead_of_being_kept_as_if_it_were_whole() -> None:
    class FullyShardedDataParallel(nn.Module):
        """Stands in for torch's, which does not start without a process group."""

    with pytest.raises(ConfigError, match="fully_shard"):
        settled(nn.Sequential(FullyShardedDataParallel()))
