"""What a step and a snapshot need of their fellow ranks: a sum, a gathering, a broadcast, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, runtime_checkable

import torch
import torch.distributed as dist

from failsoft.training.survival.saving_asked import Wish

Hear = Callable[[], list[str]]
"""Waits for everybody's text, by rank."""
_ROOM_BYTES = 32 * 1024
"""Of one rank's text in a gathering that is begun ahead: a rank's generators are 20 kB of it."""
_LENGTH_BYTES = 4


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

    def broadcast_(self, values: torch.Tensor, source: int) -> torch.Tensor:
        """Give ``values`` the bytes that they have on rank ``source``, in place, and return them.

        Args:
            values: contiguous, of the same dtype and number of elements on all ranks; on any device, in any dtype.
            source: the rank whose values count; its own stay as they are.
        """
        ...


@runtime_checkable
class GathersAhead(Protocol):
    """Ranks that can do something else while a gathering is under way."""

    def gather_ahead(self, text: str) -> AbstractContextManager[Hear]:
        """Begin a gathering for the time of the block; what is given waits for it. See :func:`gather_ahead`."""
        ...


@runtime_checkable
class MayBeAsked(Protocol):
    """Ranks each of which may be told to leave."""

    def asked(self) -> bool:
        """Whether this very rank was; no collective, and not the same on all ranks."""
        ...


@runtime_checkable
class MayBeAskedToSave(Protocol):
    """Ranks each of which may be asked to save now and go on."""

    def wanted(self) -> list[Wish]:
        """What all ranks shall save the present state for, each wish once; the same on all ranks.

        All ranks call it before the same batch. A gathering where there is any wish.
        """
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

    def broadcast_(self, values: torch.Tensor, source: int) -> torch.Tensor:
        """The values have one source."""
        return values


class ProcessGroupRanks:
    """The ranks of torch's default process group, which must be initialised.

    A tensor on a device that the group has no backend for (one in host RAM in a group of nccl alone) travels through a
    copy on a device that it has one for: host RAM, else this process's current CUDA device.
    """

    def __init__(self) -> None:
        self.rank = dist.get_rank()
        self.world = dist.get_world_size()
        self._reach = frozenset(pair.split(":")[0] for pair in str(dist.get_backend_config()).split(","))

    def sum_(self, values: torch.Tensor) -> torch.Tensor:
        """One all-reduce."""
        carried = self._carried(values)
        dist.all_reduce(carried)
        return values if carried is values else values.copy_(carried)

    def gather(self, text: str) -> list[str]:
        """One gathering of small objects; between own processes, so nobody else's pickle is read."""
        gathered: list[str | None] = [None] * self.world
        dist.all_gather_object(gathered, text)
        return [str(entry) for entry in gathered]

    @contextmanager
    def gather_ahead(self, text: str) -> Iterator[Hear]:
        """One gathering of bytes, of the same room for each; where a text is longer, another one follows it.

        The lengths go with the texts, so that all ranks know alike whether one did not fit.
        """
        content = text.encode()
        mine = torch.zeros(_ROOM_BYTES, dtype=torch.uint8)
        mine[:_LENGTH_BYTES] = _bytes(len(content).to_bytes(_LENGTH_BYTES, "big"))
        if 0 < len(content) <= _ROOM_BYTES - _LENGTH_BYTES:
            mine[_LENGTH_BYTES : _LENGTH_BYTES + len(content)] = _bytes(content)
        carried = self._carried(mine)
        theirs = [torch.empty_like(carried) for _ in range(self.world)]
        work = dist.all_gather(theirs, carried, async_op=True)

        def hear() -> list[str]:
            work.wait()
            rows = [row.cpu().numpy() for row in theirs]
            ends = [_LENGTH_BYTES + int.from_bytes(row[:_LENGTH_BYTES].tobytes(), "big") for row in rows]
            if max(ends) > _ROOM_BYTES:
                return self.gather(text)
            return [row[_LENGTH_BYTES:end].tobytes().decode() for row, end in zip(rows, ends, strict=True)]

        with _to_the_end(hear) as once:
            yield once

    @torch.no_grad()
    def broadcast_(self, values: torch.Tensor, source: int) -> torch.Tensor:
        """One broadcast of bytes: backends know few dtypes, but all know bytes."""
        if values.numel() == 0:
            return values
        plain = values.detach().view(-1).view(torch.uint8)
        carried = self._carried(plain)
        dist.broadcast(carried, source)
        if carried is not plain and self.rank != source:
            plain.copy_(carried)
        return values

    def _carried(self, values: torch.Tensor) -> torch.Tensor:
        if values.device.type in self._reach:
            return values
        return values.to("cpu" if "cpu" in self._reach else "cuda")


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


@contextmanager
def gather_ahead(ranks: Ranks, text: str) -> Iterator[Hear]:
    """Begin to gather everybody's text for the time of the block; where these ranks can't do it ahead, it is done now.

    All ranks enter it together. Whoever leaves the block without having heard, by an error too, waits for the others
    all the same, for the group's time at most: a gathering that nobody ends would write into memory that is given back,
    and keep the next one of another rank waiting. No other gathering may be begun ahead within the block.

    Yields:
        What waits for the texts of all, by rank; to be called once.

    Raises:
        RuntimeError: the group lost a rank, or its time is over.
    """
    if isinstance(ranks, GathersAhead):
        with ranks.gather_ahead(text) as hear:
            yield hear
        return
    heard = ranks.gather(text)
    yield lambda: heard


@contextmanager
def _to_the_end(hear: Hear) -> Iterator[Hear]:
    asked = False

    def once() -> list[str]:
        nonlocal asked
        asked = True
        return hear()

    try:
        yield once
    except BaseException as error:  # whatever it is, the others wait for what was begun; re-raised
        if not asked:
            _heard_in_vain(hear, error)
        raise
    if not asked:
        hear()


def _heard_in_vain(hear: Hear, cause: BaseException) -> None:
    """Who leaves by an error has that to tell; that the others were gone as well is said beside it."""
    try:
        hear()
    except RuntimeError as lost:
        cause.add_note(f"the gathering that was under way could not be ended either: {lost}")


def _bytes(content: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)
