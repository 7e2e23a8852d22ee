"""A map-style dataset over tiers of sources: bytes in, samples out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from failsoft.training.loading.board import Board
from failsoft.training.loading.sample import SourceNote, StandIn
from failsoft.training.loading.tiers import Fetched, TieredSource


class TieredDataset:
    """Decodes what the tiers give; flags what was made up.

    Args:
        source: the tiers.
        decode: makes a sample of its bytes; what it raises costs that sample.
        size: number of samples.
    """

    def __init__(self, source: TieredSource, decode: Callable[[bytes], Any], *, size: int) -> None:
        self.source = source
        self._decode = decode
        self._size = size

    def __len__(self) -> int:
        """Number of samples."""
        return self._size

    def __getitem__(self, index: int) -> Any:
        """The sample, or a :class:`StandIn` of the same form.

        Raises:
            SampleError: its bytes are wrong.
            SourceError: no tier gives it.
        """
        return self.made_of(index, self.read(index))

    def read(self, index: int) -> Fetched:
        """The sample's bytes, or made-up ones; raises as the sample itself does."""
        return self.source.fetch(index)

    def made_of(self, index: int, read: Fetched) -> Any:
        """The sample of these bytes."""
        sample = self._decode(read.data)
        if read.synthetic:
            return StandIn(sample=sample, source=self.source_of(index), why=read.why)
        return sample

    def source_of(self, index: int) -> str:
        """Shard of the sample in the last tier."""
        return self.source.source_of(index)

    def share(self, board: Board) -> None:
        """Learn of ill sources together with the other workers of a loader."""
        self.source.share(board)

    def take_notes(self) -> tuple[SourceNote, ...]:
        """Which sources rest or came back."""
        return self.source.take_notes()


def in_two_steps(dataset: object) -> TieredDataset | None:
    """The dataset, if reading and making give what its ``__getitem__`` does: a subclass may have its own."""
    if not isinstance(dataset, TieredDataset) or type(dataset).__getitem__ is not TieredDataset.__getitem__:
        return None
    return dataset
