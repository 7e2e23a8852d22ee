"""Where a snapshot's buffers lie: in memory of this process, or in a place that outlives it.

A snapshot asks its room for each buffer, and tells it when one is about to be overwritten, whole, or of no more use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from failsoft.training.snapshots.arena import Arena
    from failsoft.training.snapshots.snapshot_restore import Held

_LINE_BYTES = 64


class MakeBuffer(Protocol):
    """Makes memory for a buffer."""

    def __call__(self, size_bytes: int, *, pinned: bool) -> Tensor:
        """See :meth:`Room.buffer`."""
        ...


class Room(Protocol):
    """What :class:`failsoft.training.snapshots.snapshot.RamSnapshots` needs of the place of its buffers."""

    def buffer(self, size_bytes: int, *, pinned: bool) -> Tensor:
        """Touched memory: bytes, all 0, from a cache line on.

        Raises:
            RuntimeError, MemoryError: there is none.
        """
        ...

    def spare_bytes(self) -> int:
        """RAM that is taken already and that the next :meth:`buffer` may use."""
        ...

    def outliving_bytes(self) -> int:
        """Of the buffers that are there, those that outlive this process."""
        ...

    def settle(self) -> None:
        """Wait until what was last told to :meth:`whole` is done; before the ranks meet for another snapshot."""
        ...

    def filling(self, arena: Arena) -> None:
        """What it holds is about to be overwritten."""
        ...

    def whole(self, held: Held, *, in_use: Sequence[Arena]) -> None:
        """A snapshot is whole and healthy on all ranks; buffers that are not in use are of no more use after it."""
        ...

    def free(self, arena: Arena) -> None:
        """A buffer is of no more use, and its room is needed."""
        ...

    def withdraw(self, *, after: int) -> None:
        """No restart may begin with a snapshot of a position beyond ``after``: what led to it is undone."""
        ...


def own_buffer(size_bytes: int, *, pinned: bool) -> Tensor:
    """Memory of this process: torch's when pinned, else numpy's, which asks for huge pages: copies miss less there."""
    if pinned:
        return torch.zeros(size_bytes, dtype=torch.uint8, pin_memory=True)
    memory = np.full(size_bytes + _LINE_BYTES, 0, dtype=np.uint8)
    start = -memory.ctypes.data % _LINE_BYTES
    return torch.from_numpy(memory[start : start + size_bytes])


class OwnRoom:
    """Memory of this process; it goes with it."""

    def spare_bytes(self) -> int:
        """None."""
        return 0

    def buffer(self, size_bytes: int, *, pinned: bool) -> Tensor:
        """See :func:`own_buffer`."""
        return own_buffer(size_bytes, pinned=pinned)

    def outliving_bytes(self) -> int:
        """None."""
        return 0

    def settle(self) -> None:
        """Nothing is ever on its way."""

    def filling(self, arena: Arena) -> None:
        """Nobody else reads it."""

    def whole(self, held: Held, *, in_use: Sequence[Arena]) -> None:
        """Nobody else reads it."""

    def free(self, arena: Arena) -> None:
        """Goes when nothing refers to it."""

    def withdraw(self, *, after: int) -> None:
        """No restart begins here."""
