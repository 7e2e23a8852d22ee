"""What loading says of samples: which were bad and why, and what the batch of one rank looks like in the end."""

# B places of the rank's share of a batch

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from failsoft.training.loading.bad import BadKind, BadSample

__all__ = [
    "Ask",
    "BadKind",
    "BadSample",
    "Gathered",
    "GuardedBatch",
    "Request",
    "SourceNote",
    "StandIn",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class StandIn:
    """A synthetic sample in place of one that could not be had. It carries weight 0 wherever it goes."""

    sample: Any
    source: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceNote:
    """A source, or one shard of it, went into quarantine or came back, as seen by one process."""

    name: str
    """``tier`` or ``tier: shard``."""
    resting: bool
    cause: str
    instead: str = ""
    """Where samples come from meanwhile."""
    rest_s: float = 0.0
    """It is tried again after so long."""


class Ask(NamedTuple):
    """One rank's share of one batch, as asked of a worker."""

    position: int
    indices: tuple[int, ...]
    counted: bool = True
    """False: a rank without a share goes through the motions; everything has weight 0."""
    barred: Mapping[int, str] = {}
    """Samples that killed their worker twice, and how."""


class Request(NamedTuple):
    """What the training asks of a worker: mostly a position alone, since the worker knows the order."""

    position: int
    indices: tuple[int, ...] | None = None
    """Where the order does not say it: batches that people put back on the list."""
    counted: bool = True
    barred: Mapping[int, str] = {}
    shares: tuple[int, ...] | None = None
    """Of the ranks at that position; None: even ones."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GuardedBatch:
    """What arrives at the training loop: as many rows as were asked for, and what each row counts."""

    position: int
    indices: tuple[int, ...]
    """The samples asked for."""
    rows: tuple[int, ...]
    """The place in ``indices`` that each row of ``data`` stands for."""
    data: Any
    """What the collate function made; None when not one sample, good or reserve, could be had."""
    weights: tuple[float, ...]
    """1.0 for a real sample, 0.0 for a copy or a synthetic one that fills its place; one for each row. Plain numbers: a
    tensor would cost a file descriptor on its way between processes."""
    bad: tuple[BadSample, ...] = ()
    synthetic: tuple[BadSample, ...] = ()
    """Samples in whose place a synthetic one stands."""
    notes: tuple[SourceNote, ...] = ()

    @property
    def real(self) -> int:
        """Samples that count."""
        return round(sum(self.weights))

    @property
    def weights_B(self) -> Tensor:
        """The same as a tensor, float32."""
        return torch.tensor(self.weights)


@dataclass(kw_only=True, slots=True)
class Gathered:
    """What became of the samples of one ask, before they are made into a batch. Places are those in the ask."""

    good: dict[int, Any] = field(default_factory=dict)
    """Sample by place."""
    stand_ins: dict[int, StandIn] = field(default_factory=dict)
    bad: dict[int, tuple[BadKind, str]] = field(default_factory=dict)
    all_finite: bool | None = None
    """Each sample is looked at by itself, so the batch need not be; None before anybody knows."""

    def rows(self) -> list[tuple[int, Any]]:
        """Place and sample of everything that can be collated, by place."""
        if not self.stand_ins:
            return sorted(self.good.items())
        synthetic = {place: stand_in.sample for place, stand_in in self.stand_ins.items()}
        return sorted({**self.good, **synthetic}.items(), key=lambda row: row[0])

    def move(self, culprits: Mapping[int, tuple[BadKind, str]]) -> None:
        """These are bad, too."""
        self.bad |= culprits
        for place in culprits:
            self.good.pop(place, None)
            self.stand_ins.pop(place, None)
