"""The newest healthy state in RAM, to go back to without leaving the process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from failsoft.errors import NoSnapshotError
from failsoft.training.ranks import Ranks, SoloRank, any_rank
from failsoft.training.rng import RngState, capture_rng, restore_rng
from failsoft.training.state import FlatState, TrainingState, first_unhealthy, flatten, unflatten


@dataclass(frozen=True, kw_only=True)
class SnapshotMark:
    """Which moment a snapshot holds."""

    position: int
    step: int


@dataclass(frozen=True, kw_only=True)
class _Held:
    buffers: dict[str, Tensor]
    scalars: dict[str, Any]
    rng: RngState


class RamSnapshots:
    """Two buffers, used in turn: the old snapshot stands until the new one is whole and found healthy.

    Memory: twice the bytes of model, buffers and optimizer state, per rank; pinned where the tensors live on CUDA.
    """

    def __init__(self, state: TrainingState, *, ranks: Ranks | None = None) -> None:
        self._state = state
        self._ranks: Ranks = ranks or SoloRank()
        self._newest: _Held | None = None
        self._spare: dict[str, Tensor] = {}

    @property
    def newest(self) -> SnapshotMark | None:
        """What :meth:`restore` would go back to."""
        if self._newest is None:
            return None
        return SnapshotMark(position=int(self._newest.scalars["position"]), step=int(self._newest.scalars["step"]))

    @property
    def held_bytes(self) -> int:
        """RAM taken by both buffers."""
        newest = {} if self._newest is None else self._newest.buffers
        return sum(tensor.nbytes for tensor in [*newest.values(), *self._spare.values()])

    def take(self) -> str | None:
        """Copy the state, unless it is ill on any rank; all ranks call it together.

        Returns:
            None when the snapshot was taken, else the name of the tensor that is not finite (the old snapshot stands).
        """
        flat = flatten(self._state)
        buffers = _copy_into(self._spare, flat.tensors)
        ill = first_unhealthy(buffers)
        if any_rank(self._ranks, ill is not None):
            self._spare = buffers
            return ill or "a tensor of another rank"
        self._spare = {} if self._newest is None else self._newest.buffers
        self._newest = _Held(buffers=buffers, scalars=flat.scalars, rng=capture_rng())
        return None

    def restore(self) -> SnapshotMark:
        """Go back to the newest snapshot: tensors, optimizer, scheduler, scaler, generators, position and step.

        The breaker's counts stay as they are: what was refused, was.

        Raises:
            NoSnapshotError: none was taken yet.
        """
        mark = self.newest
        if self._newest is None or mark is None:
            raise NoSnapshotError("no snapshot to go back to; take one before the first step")
        flat = FlatState(tensors=self._newest.buffers, scalars=self._newest.scalars)
        unflatten(flat, self._state, with_breaker=False)
        restore_rng(self._newest.rng)
        return mark


def _copy_into(buffers: dict[str, Tensor], tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copy each tensor into its buffer in RAM, making buffers only where none of that shape is at hand."""
    copies = {}
    for name, tensor in tensors.items():
        buffer = buffers.get(name)
        if buffer is None or buffer.shape != tensor.shape or buffer.dtype != tensor.dtype:
            buffer = torch.empty_like(tensor, device="cpu", pin_memory=tensor.is_cuda)
        buffer.copy_(tensor)
        copies[name] = buffer
    return copies
