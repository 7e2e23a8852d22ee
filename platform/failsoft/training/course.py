"""Which samples each position of a run trains on: the planned batches, then those that people put back on the list."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from failsoft.errors import ConfigError
from failsoft.training.batches import GlobalBatches
from failsoft.training.letters.requeue import read_requeue
from failsoft.training.ranks import Ranks, from_rank_zero
from failsoft.training.together import done_by_all


@dataclass(frozen=True, kw_only=True)
class Course:
    """Positions 0 to ``total``: ``planned`` global batches, then one position for each entry of the list."""

    batches: GlobalBatches
    planned: int
    requeued: tuple[tuple[int, ...], ...] = ()
    """Sample indices of each entry."""
    left_out: tuple[int, ...] = ()
    """Samples that people left out of each entry; they count as skipped."""
    divides: Callable[[NDArray[np.int64], int], NDArray[np.int64]] | None = None
    """This rank's part of the samples at a position, where slow ranks may have less; None: every ``world``-th."""

    @classmethod
    def of(cls, batches: GlobalBatches, planned: int, *, run_folder: Path, ranks: Ranks) -> Course:
        """The course as the list stands now; rank 0 reads it for all, so that nobody trains on a longer one."""
        entries = done_by_all(ranks, lambda: read_requeue(run_folder) if ranks.rank == 0 else ())
        said = json.dumps([[list(entry.sample_indices), len(entry.without)] for entry in entries])
        heard = json.loads(from_rank_zero(ranks, said))
        return cls(
            batches=batches,
            planned=planned,
            requeued=tuple(tuple(indices) for indices, _ in heard),
            left_out=tuple(count for _, count in heard),
        )

    @property
    def total(self) -> int:
        """Positions in all."""
        return self.planned + len(self.requeued)

    def global_indices(self, position: int) -> NDArray[np.int64]:
        """Sample indices of one whole batch, in order."""
        if position < self.planned:
            return self.batches.global_indices(position)
        return np.asarray(self.requeued[self._place(position)], dtype=np.int64)

    def share(self, position: int, ranks: Ranks) -> NDArray[np.int64]:
        """This rank's share of it, as it was dealt; may be empty."""
        whole = self.global_indices(position)
        return whole[ranks.rank :: ranks.world] if self.divides is None else self.divides(whole, position)

    def skipped(self, position: int) -> int:
        """Samples that were left out of the batch by people."""
        return 0 if position < self.planned else self.left_out[self._place(position)]

    def _place(self, position: int) -> int:
        if position >= self.total:
            raise ConfigError(f"position is {position}; this run has {self.total}, from 0 to {self.total - 1}")
        return position - self.planned
