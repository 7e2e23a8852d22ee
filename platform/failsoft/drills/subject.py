"""What the engine asks of whatever is drilled. A train script and a Serve app are two of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from failsoft.drills.fault import DrillFault, Phase, PlannedFault, Side
from failsoft.drills.outcome import Outcome


@dataclass(frozen=True, kw_only=True)
class Reference:
    """The run without any fault: what every trial is compared with."""

    good: bool
    """Whether it did what it should; where not, no trial means anything and the suite stops here."""
    why: str
    """One sentence: what it did, or what was wrong with it."""
    seconds: float
    mend: str = ""
    """Of a reference that is not good: what to do."""


class Subject(Protocol):
    """A train script or a Serve app under drill. Trials do not know of each other; each gets a folder of its own."""

    @property
    def name(self) -> str:
        """For the title: the script, or the import path."""
        ...

    @property
    def side(self) -> Side:
        """Training or serving."""
        ...

    @property
    def kinds(self) -> tuple[DrillFault, ...]:
        """What can be done to it at all, in the order of the table."""
        ...

    def phases(self, kind: DrillFault) -> tuple[Phase, ...]:
        """Phases in which this kind is tried, known before the reference; never empty for one of ``kinds``."""
        ...

    def able(self, kind: DrillFault, phase: Phase) -> str | None:
        """None: it can be tried. Else why not here: the script saves nothing, or the machine gives no right to.

        Asked after the reference; free of side effects.
        """
        ...

    def reference(self, folder: Path) -> Reference:
        """Run it once without a fault. Called once, before any trial; ``folder`` exists and is empty."""
        ...

    def trial(self, faults: Sequence[PlannedFault], folder: Path) -> Outcome:
        """Run it under all these faults, started again as its user would, and have the oracle look.

        A subject that does not survive is an outcome, never an exception.

        Raises:
            FailsoftError: the drill itself could not be carried out.
        """
        ...

    def close(self) -> None:
        """End whatever was started for it, by handle. Called once, also after an error."""
        ...
