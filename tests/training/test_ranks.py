from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from failsoft.training.ranks import ProcessGroupRanks, SoloRank, any_rank, from_rank_zero, ranks_here

DTYPES = [torch.float32, torch.bfloat16, torch.float8_e5m2, torch.complex128, torch.bool, torch.int64]


@pytest.fixture
def group(tmp_path: Path) -> Iterator[ProcessGroupRanks]:
    """A group of one, which still goes through the real backend."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    ranks = ranks_here()
    assert isinstance(ranks, ProcessGroupRanks)
    yield ranks
    dist.destroy_process_group()


@pytest.mark.parametrize("shape", [(3, 2), (0,), ()], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tensors_of_every_dtype_and_shape_can_be_handed_on(
    group: ProcessGroupRanks, dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    values = torch.ones(shape).to(dtype)
    assert group.broadcast_(values, 0) is values
    assert torch.equal(values.to(torch.complex128), torch.ones(shape).to(torch.complex128))


def test_a_parameter_can_be_handed_on_without_a_gradient(group: ProcessGroupRanks) -> None:
    parameter = torch.nn.Parameter(torch.ones(2))
    group.broadcast_(parameter, 0)
    assert parameter.grad_fn is None


class WithoutBackendForMeta(ProcessGroupRanks):
    """Remembers what it was asked to carry from a device that the group can't reach."""

    def __init__(self) -> None:
        super().__init__()
        self._reach = frozenset({"elsewhere", "cpu"})


def test_what_the_group_has_no_backend_for_travels_by_way_of_a_device_that_it_has_one_for(
    group: ProcessGroupRanks,
) -> None:
    ranks = WithoutBackendForMeta()
    host = torch.ones(2)
    assert ranks._carried(host) is host
    with pytest.raises(NotImplementedError, match="meta"):  # nothing to copy out of a meta tensor, but it was tried
        ranks._carried(torch.ones(2, device="meta"))


@pytest.mark.cuda
def test_a_group_of_nccl_alone_carries_what_lies_in_host_ram(tmp_path: Path) -> None:
    dist.init_process_group("nccl", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    try:
        ranks = ranks_here()
        assert ranks.sum_(torch.tensor([2.0])).tolist() == [2.0]
        assert ranks.broadcast_(torch.tensor([3.0]), 0).tolist() == [3.0]
        assert not any_rank(ranks, False)
    finally:
        dist.destroy_process_group()


def test_a_solo_rank_is_its_own_fellow() -> None:
    ranks, values = SoloRank(), torch.tensor([1.0])
    assert (ranks_here().world, ranks.sum_(values), ranks.broadcast_(values, 0)) == (1, values, values)
    assert (any_rank(ranks, True), any_rank(ranks, False), from_rank_zero(ranks, "a")) == (True, False, "a")


def totals(group: ProcessGroupRanks, values: Tensor) -> list[float]:
    result: list[float] = group.sum_(values).tolist()
    return result


def test_a_sum_over_a_group_of_one_is_the_value(group: ProcessGroupRanks) -> None:
    assert totals(group, torch.tensor([1.5, 2.0])) == [1.5, 2.0]
    assert group.gather("word") == ["word"]
