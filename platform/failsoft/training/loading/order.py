"""Which samples one rank loads at each position; known to every worker, so that only positions travel."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from failsoft.errors import ConfigError
from failsoft.training.batches import GlobalBatches
from failsoft.training.loading.checked import indices_of
from failsoft.training.loading.sample import Ask, Request
from failsoft.training.pace.shares import part

_RESERVE = 4
_AHEAD = 2048
"""Samples whose order is worked out at a time: the work is mostly the same for one as for a thousand."""


@dataclass(frozen=True, kw_only=True)
class RankOrder:
    """The shares of one rank, a pure function of (seed, epoch, position) and of the world."""

    batches: GlobalBatches
    rank: int
    world: int
    total: int
    """Positions of the run; workers load nothing beyond, unless it is asked for."""

    def __post_init__(self) -> None:
        """Refuse ranks that are not there."""
        if not 0 <= self.rank < self.world:
            raise ConfigError(f"rank is {self.rank} in a world of {self.world}; ranks count from 0 to {self.world - 1}")

    def ask(self, request: Request) -> Ask:
        """The samples of a request. A rank without a share gets the batch's first sample, not counted."""
        position, indices, counted, barred, shares = request
        if indices is None:
            whole = self._whole(position)
            mine = whole[self.rank :: self.world] if shares is None else part(whole, shares, self.rank)
            indices, counted = indices_of(mine if len(mine) else whole[:1]), bool(len(mine))
        return Ask(position=position, indices=indices, counted=counted, barred=barred)

    def reserve(self, position: int) -> tuple[int, ...]:
        """The first samples of the rank's next batch: what stands in, at weight 0, for a share that is all bad."""
        return indices_of(self._whole(position + 1)[self.rank :: self.world][:_RESERVE])

    def _whole(self, position: int) -> NDArray[np.int64]:
        kept = self._kept
        if position not in kept:
            kept.clear()
            stretch = self.batches.stretch(position, max(1, _AHEAD // self.batches.global_batch))
            kept |= {position + ahead: batch for ahead, batch in enumerate(stretch)}
        return kept[position]

    @cached_property
    def _kept(self) -> dict[int, NDArray[np.int64]]:
        return {}

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_kept"}
