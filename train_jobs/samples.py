"""The job's samples through the guarded loader: what can't be trained on is left out, counted and told of by name."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from failsoft.errors import CorpusError
from failsoft.training.batches import GlobalBatches
from failsoft.training.chronicle import Desk
from failsoft.training.letters.letterbook import LETTERS_FOLDER
from failsoft.training.loading.checked import Checked
from failsoft.training.loading.checks import SampleChecks
from failsoft.training.loading.collate import Fill
from failsoft.training.loading.feed import Feed
from failsoft.training.loading.loader import GuardedLoader
from failsoft.training.loading.order import RankOrder
from failsoft.training.loading.sample_letters import SampleLetters
from failsoft.training.ranks import Ranks
from train_jobs.workload import Workload


@dataclass(frozen=True)
class CorpusSamples:
    """The training samples by index. The corpus is in memory, so a sample is its index; batches are cut by it."""

    workload: Workload

    def __getitem__(self, index: int) -> int:
        """The index itself.

        Raises:
            CorpusError: no utterance can be made of the entry.
        """
        workload = self.workload
        if index >= len(workload.train):
            entry = workload.unreadable[index - len(workload.train)]
            raise CorpusError(f"{entry.id}: {entry.why}")
        return index

    def source_of(self, index: int) -> str:
        """The file that it is in."""
        return self.workload.source_of(index)

    def words_of(self, index: int) -> int:
        """Words of the text, those beyond what is read included."""
        train = self.workload.train
        return int(train.lengths[index] + train.beyond[index])


def feed_of(workload: Workload, batches: GlobalBatches, ranks: Ranks, desk: Desk) -> Feed:
    """One rank's samples, checked; a letter for each that is left out. Nothing is drawn by chance."""
    order = RankOrder(batches=batches, rank=ranks.rank, world=ranks.world, total=workload.total_batches)
    samples = CorpusSamples(workload)
    checks = SampleChecks(max_length=workload.codec.config.max_words, length_of=samples.words_of, finite=False)
    checked = Checked(samples, checks=checks, collate=_indices, fill=Fill.LEAVE_OUT, reserve=order.reserve)
    letters = SampleLetters(desk.folder / LETTERS_FOLDER, rank=ranks.rank, clock=desk.clock)
    return Feed(loader=GuardedLoader(checked, order), letters=letters)


def _indices(samples: list[int]) -> NDArray[np.int64]:
    return np.array(samples, dtype=np.int64)
