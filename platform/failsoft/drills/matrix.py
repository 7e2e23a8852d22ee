"""The outcome of a drill as one table: fault by phase, and what was tried together."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from failsoft.drills.fault import PlannedFault, Side
from failsoft.drills.outcome import Outcome
from failsoft.drills.subject import Reference

FORMAT = 1
"""Of the JSON: a reader that knows another one does not guess."""


@dataclass(frozen=True, kw_only=True)
class Shrunk:
    """A combination that did not survive, and the smallest part of it that still does not."""

    faults: tuple[PlannedFault, ...]
    smallest: tuple[PlannedFault, ...]
    trials: int
    """That finding it took."""

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "faults": [fault.as_json() for fault in self.faults],
            "smallest": [fault.as_json() for fault in self.smallest],
            "trials": self.trials,
        }


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """One subject's drill."""

    subject: str
    side: Side
    seed: int
    device: str
    """Where it ran, in words; what it says of GPUs is said here, too."""
    reference: Reference
    outcomes: tuple[Outcome, ...]
    """Each fault alone in each of its phases, then the combinations."""
    shrunk: tuple[Shrunk, ...] = ()
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    """What a reader must know of how it was made."""

    @property
    def alone(self) -> tuple[Outcome, ...]:
        """Outcomes of one fault."""
        return tuple(outcome for outcome in self.outcomes if len(outcome.faults) == 1)

    @property
    def together(self) -> tuple[Outcome, ...]:
        """Outcomes of several faults at once."""
        return tuple(outcome for outcome in self.outcomes if len(outcome.faults) > 1)

    @property
    def passed(self) -> bool:
        """Whether the quiet run was good, something was tried, and all of it is known to have survived."""
        tried = [outcome for outcome in self.outcomes if not outcome.skipped]
        return self.reference.good and self.was_tried and all(outcome.good for outcome in tried)

    @property
    def was_tried(self) -> bool:
        """Whether anything was: a subject that has nothing of what was asked for shows nothing."""
        return any(not outcome.skipped for outcome in self.outcomes)

    def count(self, word: str) -> int:
        """Outcomes with this word (see :attr:`Outcome.word`)."""
        return sum(outcome.word == word for outcome in self.outcomes)

    def headline(self) -> str:
        """One sentence."""
        if not self.reference.good:
            return f"Nothing was tried: {self.reference.why}."
        words = ("survived", "lost", "undecided", "not tried")
        return ", ".join(f"{self.count(word)} {word}" for word in words) + f"; {self.seconds:.0f} s."

    def as_json(self) -> dict[str, Any]:
        """The content of matrix.json; docs/drill.md describes it."""
        return {
            "format": FORMAT,
            "subject": self.subject,
            "side": str(self.side),
            "seed": self.seed,
            "device": self.device,
            "passed": self.passed,
            "headline": self.headline(),
            "seconds": round(self.seconds, 1),
            "reference": {
                "good": self.reference.good,
                "why": self.reference.why,
                "seconds": round(self.reference.seconds, 3),
                "mend": self.reference.mend,
            },
            "counts": {word: self.count(word) for word in ("survived", "lost", "undecided", "not tried")},
            "outcomes": [outcome.as_json() for outcome in self.outcomes],
            "shrunk": [one.as_json() for one in self.shrunk],
            "notes": list(self.notes),
        }


def to_text(matrices: Sequence[Matrix]) -> str:
    """Several drills as one JSON text."""
    return json.dumps({"format": FORMAT, "drills": [one.as_json() for one in matrices]}, indent=1) + "\n"
