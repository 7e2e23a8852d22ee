"""A map-style dataset over tiers of sources: bytes in, samples out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from failsoft.training.loading.sample import SourceNote, StandIn
from failsoft.training.loading.tiers import TieredSource


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
        fetched = self.source.fetch(index)
        sample = self._decode(fetched.data)
        if fetched.synthetic:
            return StandIn(sample=sample, source=self.source_of(index), why=fetched.why)
        return sample

    def source_of(self, index: int) -> str:
        """Shard of the sample in the last tier."""
        return self.source.source_of(index)

    def take_notes(self) -> tuple[SourceNote, ...]:
        """Which sources rest or came back."""
        return self.source.take_notes()
