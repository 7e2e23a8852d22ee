"""How many workers a cluster can hold now: judged from what its nodes say, and nothing else.

A node counts when it lives, answers, is not being drained and is not excluded. Numbers of Ray are floats; a worker
sits on one node.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from failsoft.errors import ConfigError

ROOM_LOST = "room_lost"
"""The ledger's word for an attempt that ended since the nodes that are left can't hold its workers any more."""
WORKERS_CHOSEN = "workers_chosen"
"""The ledger's word for the moment before an attempt's workers are started."""
_SLACK = 1e-6
"""Ray counts in ten-thousandths; 0.1 + 0.2 CPUs are 0.3."""


class NodeState(StrEnum):
    """Whether a node takes workers."""

    READY = "ready"
    DRAINING = "draining"
    SILENT = "silent"
    """The cluster still lists it, and it does not answer."""


@dataclass(frozen=True, kw_only=True)
class WorkerRange:
    """How few and how many workers a run may have."""

    least: int = 1
    most: int = 1

    def __post_init__(self) -> None:
        """Refuse a range that holds nothing."""
        if self.least < 1:
            raise ConfigError(f"workers is {self.least}; use 1 or more, or a range like 1:4")
        if self.most < self.least:
            raise ConfigError(f"workers is {self.least}:{self.most}; write the smaller number first")

    @classmethod
    def of(cls, workers: int | tuple[int, int]) -> WorkerRange:
        """A fixed number, or a pair of least and most."""
        least, most = (workers, workers) if isinstance(workers, int) else workers
        return cls(least=least, most=most)

    @classmethod
    def parse(cls, text: str) -> WorkerRange:
        """As people write it: ``4``, or ``1:4``.

        Raises:
            ConfigError: it is neither.
        """
        least, colon, most = text.partition(":")
        try:
            return cls(least=int(least), most=int(most) if colon else int(least))
        except ValueError as error:
            raise ConfigError(f"workers is {text!r}; write a number like 4, or a range like 1:4") from error

    def given(self) -> int | tuple[int, int]:
        """As :meth:`of` takes it."""
        return self.least if self.least == self.most else (self.least, self.most)

    def choose(self, fit: int) -> int | None:
        """As many as fit, up to the most; None when fewer fit than must."""
        return None if fit < self.least else min(fit, self.most)


@dataclass(frozen=True, kw_only=True)
class NodeRoom:
    """One node that the cluster lists."""

    node: str
    """Its id."""
    name: str
    """For people."""
    free: Mapping[str, float]
    """Resources that nobody holds."""
    total: Mapping[str, float]
    """Resources of the node when nobody holds any."""
    state: NodeState = NodeState.READY


@dataclass(frozen=True, kw_only=True)
class WorkerNeed:
    """What one worker asks for."""

    resources: Mapping[str, float] = field(default_factory=lambda: {"CPU": 1.0})

    def __post_init__(self) -> None:
        """Refuse a worker that needs nothing: any number of them would fit."""
        if not any(amount > 0.0 for amount in self.resources.values()):
            raise ConfigError(f"a worker needs {dict(self.resources)}; give it a CPU or a GPU at least")

    def fits_in(self, there: Mapping[str, float]) -> int:
        """How many workers these resources of one node hold."""
        counts = (there.get(name, 0.0) / amount for name, amount in self.resources.items() if amount > 0.0)
        return max(0, math.floor(min(counts) + _SLACK))


def need_of(resources: Mapping[str, float]) -> WorkerNeed:
    """The need as Ray is told it."""
    return WorkerNeed(resources=resources)


def usable(rooms: Iterable[NodeRoom], excluded: frozenset[str]) -> list[NodeRoom]:
    """The nodes that may get a worker."""
    return [room for room in rooms if room.state is NodeState.READY and room.node not in excluded]


def fitting(rooms: Iterable[NodeRoom], need: WorkerNeed, excluded: frozenset[str] = frozenset()) -> int:
    """Workers that fit into what is free now, beside those that run."""
    return sum(need.fits_in(room.free) for room in usable(rooms, excluded))


def fitting_when_idle(rooms: Iterable[NodeRoom], need: WorkerNeed, excluded: frozenset[str] = frozenset()) -> int:
    """Workers that would fit if nobody held anything: more can't come before a node does."""
    return sum(need.fits_in(room.total) for room in usable(rooms, excluded))


def silent(rooms: Iterable[NodeRoom]) -> frozenset[str]:
    """Ids of nodes that are listed and do not answer; the cluster would still place workers on them."""
    return frozenset(room.node for room in rooms if room.state is NodeState.SILENT)


def in_words(rooms: Iterable[NodeRoom], need: WorkerNeed, excluded: frozenset[str] = frozenset()) -> str:
    """What is free where, for people who wait: ``0 of 1 CPU free on node-a; node-b is drained``."""
    able = [room for room in rooms if need.fits_in(room.total)]
    words = "; ".join(_node_in_words(room, need, excluded) for room in able)
    return words or "the cluster has no node that could hold one"


def _node_in_words(room: NodeRoom, need: WorkerNeed, excluded: frozenset[str]) -> str:
    if room.node in excluded:
        return f"{room.name} is excluded"
    if room.state is not NodeState.READY:
        return f"{room.name} is {room.state}"
    amounts = (f"{room.free.get(kind, 0.0):g} of {room.total.get(kind, 0.0):g} {kind}" for kind in need.resources)
    return f"{', '.join(amounts)} free on {room.name}"
