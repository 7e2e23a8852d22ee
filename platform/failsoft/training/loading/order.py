"""Which samples one rank loads at each position; known to every worker, so that only positions travel."""

from __future__ import annotations

from dataclasses import dataclass

from failsoft.errors import ConfigError
from failsoft.training.batches import GlobalBatches
from failsoft.training.loading.checked import indices_of
from failsoft.training.loading.sample import Ask, Request

_RESERVE = 4


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
        position, indices, counted, barred = request
        if indices is None:
            whole = self.batches.global_indices(position)
            mine = whole[self.rank :: self.world]
            indices, counted = indices_of(mine if len(mine) else whole[:1]), bool(len(mine))
        return Ask(position=position, indices=indices, counted=counted, barred=barred)

    def reserve(self, position: int) -> tuple[int, ...]:
        """The first samples of the rank's next batch: what stands in, at weight 0, for a share that is all bad."""
        return indices_of(self.batches.global_indices(position + 1)[self.rank :: self.world][:_RESERVE])
