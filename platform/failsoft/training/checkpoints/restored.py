"""Where a run goes on from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from failsoft.artifacts.store import Artifact


class Source(StrEnum):
    """What kind of place a state was restored from."""

    DISK = "disk"
    HOST_MEMORY = "memory of the host"


@dataclass(frozen=True, kw_only=True)
class Restored:
    """A state that was restored."""

    name: str
    position: int
    step: int
    source: Source = Source.DISK


Instead = Callable[[Artifact | None], Restored | None]
"""Told of the newest checkpoint, on all ranks; may restore something newer into the state, or leave that as it is."""
