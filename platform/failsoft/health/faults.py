"""Planned faults as data: (kind, where, when) -> something breaks. Used by demos, drills and tests only."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from pathlib import Path

from failsoft.errors import ConfigError
from failsoft.health.json_object import json_value


class FaultKind(StrEnum):
    """What breaks."""

    NAN_BATCH = "nan_batch"
    """The loss of this batch is NaN. Bound to the data: a replay of the batch meets it again."""
    INF_GRADIENT = "inf_gradient"
    """One gradient entry is Inf. Bound to the data."""
    KILL_WORKER = "kill_worker"
    """SIGKILL to the worker itself, before it starts this batch. Happens once, also across restarts."""
    OUT_OF_MEMORY = "out_of_memory"
    """Memory runs out in each pass over more samples than ``above_samples``, in the forward or the backward pass."""
    SLOW_RANK = "slow_rank"
    """Each sample takes this rank ``sample_s`` longer, from ``position`` to ``last``."""
    BROKEN_WEIGHTS = "broken_weights"
    """A serving replica's weights are shuffled in memory while the fault's file says so."""


class FaultMoment(StrEnum):
    """In which pass memory runs out."""

    FORWARD = "forward"
    BACKWARD = "backward"
    """In the middle of it: the gradients of later layers are there, those of earlier ones are not."""


_ONCE = frozenset({FaultKind.KILL_WORKER})


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One planned fault."""

    kind: FaultKind
    position: int
    """Batch position (training): batches consumed since the start of the run, from 0."""
    rank: int = 0
    """The rank that it strikes."""
    when: FaultMoment = FaultMoment.FORWARD
    """Of ``out_of_memory``: the pass that fails."""
    above_samples: int = 1
    """Of ``out_of_memory``: passes over so many samples, or fewer, fit; 0: none does."""
    last: int | None = None
    """Of ``slow_rank``: the last batch that it strikes, too; None: the first is the only one."""
    sample_s: float = 0.0
    """Of ``slow_rank``: seconds that each sample takes longer."""

    def __post_init__(self) -> None:
        """Refuse faults that could never strike."""
        if self.position < 0 or self.rank < 0:
            raise ConfigError(f"fault {self.kind} at position {self.position}, rank {self.rank}: both count from 0")
        if self.above_samples < 0:
            raise ConfigError(f"above_samples is {self.above_samples}; use 0 or more")
        if not 0.0 <= self.sample_s < math.inf or (self.last is not None and self.last < self.position):
            raise ConfigError(
                f"fault {self.kind} from {self.position} to {self.last} with sample_s {self.sample_s}; last is not "
                "before position, and sample_s is 0 or more"
            )

    @property
    def mark(self) -> str:
        """A name for the file that says that a once-only fault has struck."""
        return f"{self.kind}-{self.position}-{self.rank}"

    def strikes(self, position: int, rank: int) -> bool:
        """Whether it strikes this rank at this batch."""
        return rank == self.rank and self.position <= position <= (self.position if self.last is None else self.last)


@dataclass(frozen=True, kw_only=True)
class FaultPlan:
    """All faults of a run. Empty means that nothing is planned, which is what production uses."""

    faults: tuple[Fault, ...] = ()

    def due(self, *, position: int, rank: int, struck: Path) -> tuple[Fault, ...]:
        """Faults that strike this rank at this batch.

        Args:
            position: batch position in the run.
            rank: the asking rank.
            struck: folder of marks; a once-only fault with a mark there is over. Taking it here makes the mark first.
        """
        found = [fault for fault in self.faults if fault.strikes(position, rank)]
        return tuple(fault for fault in found if fault.kind not in _ONCE or _first_time(struck / fault.mark))

    def to_json(self) -> str:
        """JSON text that :meth:`from_json` reads back."""
        return json.dumps([asdict(fault) for fault in self.faults])

    @classmethod
    def from_json(cls, text: str) -> FaultPlan:
        """Read a plan.

        Raises:
            ConfigError: the text is not a JSON list of faults, or names an unknown kind or field.
        """
        try:
            return cls(faults=tuple(_fault(entry) for entry in json_value(text)))
        except (ValueError, TypeError, KeyError) as error:
            kinds = ", ".join(FaultKind)
            raise ConfigError(
                f"not a fault plan: {error}; write a JSON list like "
                f'[{{"kind": "nan_batch", "position": 40, "rank": 0}}], kinds: {kinds}'
            ) from error


def burst(kind: FaultKind, *, first: int, count: int, ranks: Iterable[int] = (0,)) -> tuple[Fault, ...]:
    """The same fault at ``count`` batches in a row."""
    return tuple(Fault(kind=kind, position=first + offset, rank=rank) for offset in range(count) for rank in ranks)


def _fault(entry: dict[str, object]) -> Fault:
    known = tuple(field.name for field in fields(Fault))
    unknown = set(entry) - set(known)
    if unknown:
        raise ConfigError(f"fault {entry} has unknown fields {sorted(unknown)}; known are {', '.join(known)}")
    return Fault(
        kind=FaultKind(str(entry["kind"])),
        position=int(str(entry["position"])),
        rank=int(str(entry.get("rank", 0))),
        when=FaultMoment(str(entry.get("when", FaultMoment.FORWARD))),
        above_samples=int(str(entry.get("above_samples", 1))),
        last=None if entry.get("last") is None else int(str(entry["last"])),
        sample_s=float(str(entry.get("sample_s", 0.0))),
    )


def _first_time(mark: Path) -> bool:
    mark.parent.mkdir(parents=True, exist_ok=True)
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
