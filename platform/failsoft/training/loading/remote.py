"""Samples from anywhere: whatever fsspec or pyarrow can open, with an end to every wait, and each byte checked."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import fsspec

from failsoft.errors import ConfigError, SampleError, SourceError
from failsoft.health.backoff import BackoffPolicy
from failsoft.health.clock import Clock, SystemClock
from failsoft.training.loading.deadline import Deadline
from failsoft.training.loading.layout import Place, ShardLayout, sample_digest
from failsoft.training.loading.wording import in_words


class ByteReader(Protocol):
    """A file system, as far as samples need one. Picklable, and connected by the process that reads."""

    def read(self, path: str, *, first: int, length: int) -> bytes:
        """``length`` bytes of a file from byte ``first``; raises whatever the file system raises."""
        ...


@dataclass(frozen=True, kw_only=True)
class FsspecReader:
    """Reads below any URL that fsspec knows: ``s3://``, ``gs://``, ``https://``, ``hf://``, ``file://``."""

    url: str
    options: dict[str, Any] = field(default_factory=dict)
    """Of the file system: credentials, endpoint."""

    def read(self, path: str, *, first: int, length: int) -> bytes:
        """A ranged read."""
        filesystem, root = self._opened
        return bytes(filesystem.cat_file(f"{root.rstrip('/')}/{path}", start=first, end=first + length))

    @cached_property
    def _opened(self) -> tuple[Any, str]:
        filesystem, root = fsspec.core.url_to_fs(self.url, **self.options)
        return filesystem, str(root)

    def __getstate__(self) -> dict[str, Any]:
        return {"url": self.url, "options": self.options}  # a connection does not outlive the way to another process


@dataclass(frozen=True, kw_only=True)
class RemotePolicy:
    """How long a remote may take, and how often it is tried."""

    timeout_s: float = 10.0
    """One read is cut off after this."""
    tries: int = 3
    """Reads of one sample before its source counts as failed."""
    wait: BackoffPolicy = field(default_factory=lambda: BackoffPolicy(first_s=0.1, factor=4.0, cap_s=2.0))
    """Between tries."""

    def __post_init__(self) -> None:
        """Refuse what never reads."""
        if not self.timeout_s > 0.0:
            raise ConfigError(f"timeout_s is {self.timeout_s}; a read needs more than 0 s")
        if self.tries < 1:
            raise ConfigError(f"tries is {self.tries}; use 1 or more")


class RemoteSource:
    """Samples of a layout, read through a file system. Each is compared with its digest before anybody sees it.

    Args:
        reader: the file system.
        layout: places and digests.
        name: of the tier, for events.
        policy: time-outs and tries.
        clock: for the waits between tries.
    """

    def __init__(
        self,
        reader: ByteReader,
        layout: ShardLayout,
        *,
        name: str = "remote",
        policy: RemotePolicy | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self._reader = reader
        self._layout = layout
        self._policy = policy or RemotePolicy()
        self._clock = clock or SystemClock()

    def __len__(self) -> int:
        """Number of samples."""
        return len(self._layout)

    def shard_of(self, index: int) -> str:
        """The shard's path."""
        return self._layout.shard_of(index)

    def fetch(self, index: int) -> bytes:
        """The sample's bytes, as the layout promises them.

        Raises:
            SourceError: no answer, or an error, at each try.
            SampleError: bytes that do not fit their digest, or too few, at each try.
        """
        place, policy = self._layout.place_of(index), self._policy
        failure: SampleError | SourceError | None = None
        for attempt in range(1, policy.tries + 1):
            try:
                return self._once(place)
            except (SampleError, SourceError) as error:
                failure = error
            if attempt < policy.tries:
                self._clock.sleep_s(policy.wait.wait_s(attempt, self._rng))
        raise failure or SourceError(f"{self.name} was not asked")

    def _once(self, place: Place) -> bytes:
        try:
            data = self._deadline.call(lambda: self._reader.read(place.shard, first=place.first, length=place.length))
        except SourceError as error:
            raise SourceError(f"{place.shard}: {error}") from error
        except Exception as error:  # every file system has errors of its own; each means: no answer
            raise SourceError(f"{place.shard}: {in_words(error)}") from error
        if len(data) != place.length:
            raise SampleError(
                f"{place.shard} gave {len(data)} of {place.length} bytes at {place.first}; it was cut off"
            )
        if sample_digest(data) != place.digest:
            raise SampleError(f"bytes {place.first} to {place.first + place.length} of {place.shard} are changed")
        return data

    @cached_property
    def _deadline(self) -> Deadline:
        return Deadline(self._policy.timeout_s)

    @cached_property
    def _rng(self) -> random.Random:
        return random.Random()  # jitter shall differ between workers

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in {"_deadline", "_rng"}}
