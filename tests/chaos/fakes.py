"""A subject whose bugs are planted: which sets of faults it does not survive is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from failsoft.drills.fault import DrillFault, Phase, PlannedFault, Side
from failsoft.drills.outcome import Outcome
from failsoft.drills.subject import Reference
from failsoft.errors import TrainingError
from failsoft.health.clock import ManualClock

Kinds = frozenset[DrillFault]


@dataclass
class PlantedBugs:
    name: str = "planted"
    side: Side = Side.TRAINING
    kinds: tuple[DrillFault, ...] = (DrillFault.NAN, DrillFault.HANG, DrillFault.SIGTERM, DrillFault.DRAIN)
    bugs: tuple[Kinds, ...] = ()
    """Each set of kinds that it does not survive together."""
    without: frozenset[Phase] = frozenset()
    """Phases that it has not."""
    breaks_the_drill: frozenset[DrillFault] = frozenset()
    well: bool = True
    tried: list[tuple[PlannedFault, ...]] = field(default_factory=list)
    closed: int = 0
    clock: ManualClock | None = None
    """Goes on by the seconds that each trial takes."""

    def phases(self, kind: DrillFault) -> tuple[Phase, ...]:
        return (Phase.TRAINING,) if kind is DrillFault.NAN else (Phase.START, Phase.TRAINING)

    def able(self, kind: DrillFault, phase: Phase) -> str | None:
        return "it has no such phase" if phase in self.without else None

    def reference(self, folder: Path) -> Reference:
        return Reference(good=self.well, why="12 steps" if self.well else "it ends at once", seconds=1.0)

    def trial(self, faults: Sequence[PlannedFault], folder: Path) -> Outcome:
        self.tried.append(tuple(faults))
        if self.clock is not None:
            self.clock.advance(0.5)
        kinds = frozenset(fault.kind for fault in faults)
        if kinds & self.breaks_the_drill:
            raise TrainingError("no such process")
        bad = any(bug <= kinds for bug in self.bugs)
        why = "the weights differ" if bad else "the same weights"
        return Outcome(faults=tuple(faults), survived=not bad, seconds=0.5, why=why, mend="mend it" if bad else "")

    def close(self) -> None:
        self.closed += 1
