"""Every way in which a run does less than it was asked to, as an event that begins, changes and ends.

Whoever degrades says so through one :class:`Degradations`: what it is, what caused it, how far it goes, what it costs
and what will end it. Nothing is said per step, and saying the same twice is silent, so a caller may say what holds
whenever it looks. :mod:`failsoft.training.accounting.degraded` adds the events up: which part of the run was degraded.

Rank 0 speaks of what all ranks agreed on; what only one rank knows (the source of its own loader) it tells itself.
What was open when workers died is over by their death: whoever takes a degradation up again after a restart says that
it began. So does rank 0 of each group that is smaller than the one that was asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

BEGAN = "degradation_began"
CHANGED = "degradation_changed"
ENDED = "degradation_ended"


class DegradationKind(StrEnum):
    """What is less than it was asked to be."""

    MEMORY = "memory_rung"
    """A rung of the memory ladder: smaller micro-batches, capped length, offloaded state."""
    SMALLER_BATCH = "smaller_batch"
    """The effective batch, and by its rule the learning rate."""
    SLOW_RANK = "slow_rank"
    """A rank holds the others up; with the remedy on, others do part of its work."""
    SOURCE = "source_tier"
    """Samples come from a lower tier, or a source is in quarantine."""
    SYNTHETIC = "synthetic_share"
    """Part of the samples stand in for others and carry no weight."""
    STORAGE = "storage"
    """Checkpoints are refused, late, or lie in a second place."""
    LOWER_RATE = "lower_rate"
    """The learning rate is relieved after trouble."""
    CALLBACK = "callback_rests"
    """A validation, logger or exporter failed in a row and is left alone for a while."""
    WORLD = "smaller_world"
    """Fewer workers than were asked for."""


class Tell(Protocol):
    """Writes an event to the ledger; ``Chronicle.tell`` and ``Ledger.record`` do."""

    def __call__(self, kind: str, why: str, **data: object) -> object:
        """Record one event."""
        ...


@dataclass(frozen=True, kw_only=True)
class Degradation:
    """One of them, as it holds now."""

    kind: DegradationKind
    name: str = ""
    """Tells several of a kind apart: the source, the callback, ``rank 3``."""
    cause: str
    level: str = ""
    """How far: the rung, the tier, the share."""
    cost: str = ""
    """What it costs, in words."""
    way_back: str = ""
    """What ends it."""
    details: Mapping[str, object] = field(default_factory=dict)
    """Small JSON for the event."""

    def as_dict(self) -> dict[str, object]:
        """For the ledger; the cause is the event's ``why``."""
        said = {"level": self.level, "cost": self.cost, "way_back": self.way_back}
        return {"degradation": self.kind, "name": self.name} | said | dict(self.details)


class Degradations:
    """The open degradations of one teller, and the door through which they begin, change and end.

    Args:
        tell: writes events.
        rank: whose they are, where one rank speaks for itself; None: all ranks agreed.
    """

    def __init__(self, tell: Tell, *, rank: int | None = None) -> None:
        self._tell = tell
        self._open: dict[tuple[DegradationKind, str], Degradation] = {}
        self._about: dict[str, object] = {} if rank is None else {"rank": rank}

    @property
    def open(self) -> tuple[Degradation, ...]:
        """What holds now, in the order of beginning."""
        return tuple(self._open.values())

    def at(self, position: int) -> None:
        """What is told from here on is about this batch; for a teller that does not know the position itself."""
        self._about["position"] = position

    def began(self, now: Degradation) -> None:
        """It holds from here on; on another level than before it changed, on the same nothing is said."""
        before = self._open.get((now.kind, now.name))
        if before is not None and before.level == now.level:
            return
        self._open[now.kind, now.name] = now
        level_before = {} if before is None else {"level_before": before.level}
        self._tell(BEGAN if before is None else CHANGED, now.cause, **(now.as_dict() | level_before | self._about))

    def ended(self, kind: DegradationKind, *, why: str, name: str = "") -> None:
        """It is over; silent where it had not begun."""
        if self._open.pop((kind, name), None) is not None:
            self._tell(ENDED, why, degradation=kind, name=name, **self._about)


def smaller_world(world: int, *, of: int) -> Degradation:
    """Fewer workers than were asked for; each group that is so says it when it begins."""
    return Degradation(
        kind=DegradationKind.WORLD,
        cause=f"the cluster holds {world} of the {of} workers that were asked for",
        level=f"{world} of {of} workers",
        cost="fewer samples a second; batches and learning rate are the same",
        way_back="a restart with more workers, when there is room for them",
        details={"world": world, "full_world": of},
    )
