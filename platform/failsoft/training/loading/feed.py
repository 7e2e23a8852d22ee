"""What a task that loads its samples is made of: the loader, the letters of what was left out, and the news."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from failsoft.errors import LoaderError
from failsoft.training.loading.checked import indices_of
from failsoft.training.loading.loader import GuardedLoader
from failsoft.training.loading.news import SourceNews
from failsoft.training.loading.sample import BadKind, GuardedBatch
from failsoft.training.loading.sample_letters import SampleLetters


@dataclass(kw_only=True)
class Feed:
    """One rank's samples, batch by batch; a task hands on ``load_samples``, ``take_skipped`` and ``take_synthetic``."""

    loader: GuardedLoader
    letters: SampleLetters | None = None
    news: SourceNews | None = None
    _batch: GuardedBatch | None = field(default=None, init=False)
    _skipped: int = field(default=0, init=False)
    _synthetic: int = field(default=0, init=False)
    _data: Any = field(default=None, init=False)

    @property
    def batch(self) -> GuardedBatch:
        """The batch that was loaded last; its ``data`` is never None.

        Raises:
            LoaderError: none was loaded yet.
        """
        if self._batch is None:
            raise LoaderError("no batch is loaded; call load_samples() before the loss")
        return self._batch

    def load_samples(self, position: int, indices: NDArray[np.int64], *, counted: bool = True) -> int:
        """Load one rank's share; returns how many of its samples are real.

        Args:
            position: of the batch.
            indices: the samples, at least one.
            counted: False: the rank goes through the motions, all weights are 0.

        Raises:
            LoaderError: not one sample could be had since the start, so there is nothing to even stand in; or workers
                died again and again.
        """
        deaths = self.loader.deaths
        batch = self.loader.fetch(position, indices_of(indices), counted=counted)
        if self.news is not None and self.loader.deaths > deaths:
            self.news.died(self._worker(position), position=position)
        self._tell(batch)
        if batch.data is None:
            if self._data is None:
                first = batch.bad[0]
                raise LoaderError(
                    f"not one sample could be loaded; sample {first.index} of {first.source or 'its source'}: "
                    f"{first.kind}: {first.why}. Mend the source and start the run again"
                )
            data, size = self._data
            batch = replace(batch, data=data, weights=(0.0,) * size, rows=tuple(range(size)))
        self._batch, self._data = batch, (batch.data, len(batch.weights))
        return batch.real

    def take_skipped(self) -> int:
        """Samples left out since the last asking because something is wrong with them."""
        taken, self._skipped = self._skipped, 0
        return taken

    def take_synthetic(self) -> int:
        """Samples out of reach since the last asking: something without weight stood in their place."""
        taken, self._synthetic = self._synthetic, 0
        return taken

    def weight(self, indices: NDArray[np.int64]) -> float:
        """How many of these samples of the batch are real: what a micro-batch of them counts in its mean."""
        return float(sum(self.batch.weights[row] for row in self._rows(indices)))

    def rows(self, indices: NDArray[np.int64]) -> Tensor:
        """The rows of the batch that stand for these samples: a micro-batch. In the order of the batch; int64.

        Where none of them is this rank's, its first row: the rank goes through the motions with it, at weight 0.
        """
        return torch.tensor(self._rows(indices) or [0])

    @property
    def ahead(self) -> int:
        """Positions beyond the last one loaded for which samples may be on their way."""
        return self.loader.ahead

    def follow(self, shares_at: Callable[[int], tuple[int, ...]]) -> None:
        """Load by these shares of the ranks, for a run whose slow ranks are relieved."""
        self.loader.follow(shares_at)

    def close(self) -> None:
        """End the workers."""
        self.loader.close()

    def _tell(self, batch: GuardedBatch) -> None:
        out_of_reach = sum(1 for sample in batch.bad if sample.kind is BadKind.OUT_OF_REACH)
        self._skipped += len(batch.bad) - out_of_reach
        self._synthetic += len(batch.synthetic) + out_of_reach
        if self.letters is not None and (batch.bad or batch.synthetic):
            self.letters.write(batch.position, batch.bad)
            self.letters.write(batch.position, batch.synthetic, synthetic=True)
        if self.news is not None and batch.notes:
            self.news.heard(self._worker(batch.position), batch.notes, position=batch.position)

    def _rows(self, indices: NDArray[np.int64]) -> list[int]:
        wanted, batch = set(indices_of(indices)), self.batch
        return [row for row, place in enumerate(batch.rows) if batch.indices[place] in wanted]

    def _worker(self, position: int) -> int:
        return position % max(1, self.loader.policy.workers)
