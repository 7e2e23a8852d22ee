"""What a step needs of its fellow ranks: a sum, a gathering, and nothing else."""

from __future__ import annotations

from typing import Protocol

import torch
import torch.distributed as dist


class Ranks(Protocol):
    """The ranks of a run, seen from one of them. Every method is a collective: all ranks call it, in the same order."""

    @property
    def rank(self) -> int:
        """This rank, from 0."""
        ...

    @property
    def world(self) -> int:
        """How many ranks there are."""
        ...

    def sum_(self, values: torch.Tensor) -> torch.Tensor:
        """Sum ``values`` over all ranks in place, and return them."""
        ...

    def gather(self, text: str) -> list[str]:
        """Everybody's text, by rank."""
        ...


class SoloRank:
    """A run of one process."""

    rank = 0
    world = 1

    def sum_(self, values: torch.Tensor) -> torch.Tensor:
        """The values are their own sum."""
        return values

    def gather(self, text: str) -> list[str]:
        """One text."""
        return [text]


class ProcessGroupRanks:
    """The ranks of torch's default process group, which must be initialised."""

    def __init__(self) -> None:
        self.rank = dist.get_rank()
        self.world = dist.get_world_size()

    def sum_(self, values: torch.Tensor) -> torch.Tensor:
        """One all-reduce."""
        dist.all_reduce(values)
        return values

    def gather(self, text: str) -> list[str]:
        """One gathering of small objects; between own processes, so nobody else's pickle is read."""
        gathered: list[str | None] = [None] * self.world
        dist.all_gather_object(gathered, text)
        return [str(entry) for entry in gathered]


def ranks_here() -> Ranks:
    """The process group's ranks when there is one, else a solo rank."""
    if dist.is_available() and dist.is_initialized():
        return ProcessGroupRanks()
    return SoloRank()


def any_rank(ranks: Ranks, flag: bool) -> bool:  # noqa: FBT001 -- the flag is the datum
    """Whether the flag is up on any rank; the same answer everywhere."""
    if ranks.world == 1:
        return flag
    return bool(ranks.sum_(torch.tensor(float(flag))).item() > 0)


def from_rank_zero(ranks: Ranks, text: str) -> str:
    """What rank 0 says, on every rank."""
    return ranks.gather(text)[0]
