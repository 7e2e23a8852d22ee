"""What one trial showed: survived, not, or not known, which is never good."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from failsoft.drills.fault import PlannedFault
from failsoft.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Of one trial: these faults together, once."""

    faults: tuple[PlannedFault, ...]
    """What was planned; all of them."""
    survived: bool | None
    """None: it could not be told, or not be tried here; ``why`` says why, and it never counts as good."""
    seconds: float
    """From its start to the oracle's word; restarts included."""
    why: str
    """One sentence: what the oracle saw, or why nothing could be told."""
    lost: int = 0
    """Samples never trained on though nobody refused them; or requests that had a fallback and got no answer."""
    repeated: int = 0
    """Samples that are in the end state more than once; serving: 0."""
    torn: int = 0
    """Visible files that are neither their old nor their new content."""
    left: int = 0
    """Processes or ports that the subject left behind."""
    again: int = 0
    """Training: steps that were done once more, since the work of before was undone. A cost, no loss."""
    seen: tuple[str, ...] = ()
    """What a user saw of it, oldest first: lines of the ledger, the last words of the output, codes of answers."""
    mend: str = ""
    """Of what did not survive: what to do about it, or the next command."""
    skipped: bool = False
    """It was never tried: the subject has no such phase or part, or the machine no such right. ``survived`` is None."""

    def __post_init__(self) -> None:
        """Refuse an outcome that would pass for good news."""
        if not self.seconds >= 0.0 or not math.isfinite(self.seconds):
            raise ConfigError(f"an outcome took {self.seconds} seconds; give what a monotonic clock measured")
        counts = {"lost": self.lost, "repeated": self.repeated, "torn": self.torn, "left": self.left}
        if self.again < 0:
            raise ConfigError(f"an outcome has again {self.again}; a count starts at 0")
        for name, count in counts.items():
            if count < 0:
                raise ConfigError(f"an outcome has {name} {count}; a count starts at 0")
        if self.survived and any(counts.values()):
            raise ConfigError(f"an outcome survived and has {counts}; what lost or left something did not survive")
        if self.skipped and self.survived is not None:
            raise ConfigError("an outcome was skipped and has a verdict; what was never tried has none")

    @property
    def good(self) -> bool:
        """Whether it is known to have survived."""
        return self.survived is True

    @property
    def bad(self) -> bool:
        """Whether it was tried and is not known to have survived: undecided counts here."""
        return not self.good and not self.skipped

    @property
    def word(self) -> str:
        """One of ``survived``, ``lost``, ``undecided`` and ``not tried``."""
        if self.skipped:
            return "not tried"
        return {True: "survived", False: "lost", None: "undecided"}[self.survived]

    def as_json(self) -> dict[str, Any]:
        """One entry of ``outcomes`` in the matrix; the fields are those of this class."""
        return {
            "faults": [fault.as_json() for fault in self.faults],
            "verdict": self.word,
            "survived": self.survived,
            "seconds": round(self.seconds, 3),
            "why": self.why,
            "lost": self.lost,
            "repeated": self.repeated,
            "torn": self.torn,
            "left": self.left,
            "again": self.again,
            "seen": list(self.seen),
            "mend": self.mend,
        }


def not_tried(faults: tuple[PlannedFault, ...], why: str) -> Outcome:
    """The outcome of what can't be tried here."""
    return Outcome(faults=faults, survived=None, seconds=0.0, why=why, skipped=True)
