"""Samples of shards on this machine's own disk: a tier that needs no connection, checked like any other."""

from __future__ import annotations

import os
from typing import Any

from failsoft.errors import SampleError, SourceError
from failsoft.training.loading.layout import ShardLayout, sample_digest

_MAX_OPEN = 64


class LocalShards:
    """Reads the shards of a layout beside it. Picklable; each process opens the files itself.

    Args:
        layout: places and digests; its folder holds the shards.
        name: of the tier, for events.
    """

    def __init__(self, layout: ShardLayout, *, name: str = "local") -> None:
        self.name = name
        self._layout = layout
        self._open: dict[str, int] = {}

    def __len__(self) -> int:
        """Number of samples."""
        return len(self._layout)

    def shard_of(self, index: int) -> str:
        """The shard's file name."""
        return self._layout.shard_of(index)

    def fetch(self, index: int) -> bytes:
        """The sample's bytes, as the layout promises them.

        Raises:
            SourceError: the file can't be read.
            SampleError: the bytes do not fit their digest, or are too few.
        """
        place = self._layout.place_of(index)
        try:
            data = os.pread(self._handle(place.shard), place.length, place.first)
        except OSError as error:
            self._forget(place.shard)
            raise SourceError(f"{place.shard}: {error}") from error
        if len(data) != place.length or sample_digest(data) != place.digest:
            raise SampleError(f"bytes {place.first} to {place.first + place.length} of {place.shard} are changed")
        return data

    def close(self) -> None:
        """Close all files; they open again when they are read."""
        for shard in list(self._open):
            self._forget(shard)

    def _handle(self, shard: str) -> int:
        if shard not in self._open:
            if len(self._open) >= _MAX_OPEN:
                self._forget(next(iter(self._open)))
            self._open[shard] = os.open(self._layout.folder / shard, os.O_RDONLY)
        return self._open[shard]

    def _forget(self, shard: str) -> None:
        handle = self._open.pop(shard, None)
        if handle is not None:
            os.close(handle)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_open": {}}
