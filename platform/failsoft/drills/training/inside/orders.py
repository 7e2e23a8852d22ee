"""What a drilled process is told: where its run lies, and what strikes where. A file that the environment names."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from failsoft.drills.fault import DrillFault, PlannedFault

ORDERS_VARIABLE = "FAILSOFT_DRILL_ORDERS"
"""Names the file; where it is not set, nothing is hooked."""
ATTEMPT_VARIABLE = "FAILSOFT_DRILL_ATTEMPT"
"""Which start of the trial this is, from 1; the first process of each is the one that the user started."""
TRIAL_VARIABLE = "FAILSOFT_DRILL_TRIAL"
"""Marks every process of a trial, so that those that stay behind are found."""


class Event(StrEnum):
    """Where a script can be struck."""

    START = "start"
    """The process has begun, the script not yet."""
    FORWARD = "forward"
    """The outermost module is called with gradients on; counted in backward passes before it."""
    LOOK = "look"
    """The outermost module is called with gradients off; counted in such calls before it."""
    SAVE = "save"
    """A file of the run is written or renamed; counted in those of the same key before it."""


@dataclass(frozen=True, kw_only=True)
class Trigger:
    """One point of a run."""

    event: Event
    count: int = 0
    key: str = ""
    """Of a save: what and where, without its numbers; see :func:`failsoft.drills.training.inside.course.key_of`."""


@dataclass(frozen=True, kw_only=True)
class Strike:
    """One fault, and the point at which it strikes, once."""

    fault: PlannedFault
    trigger: Trigger
    name: str
    """Of its mark; unlike any other of the trial."""


@dataclass(frozen=True, kw_only=True)
class Orders:
    """All that a drilled process is told."""

    run: Path
    """The run's folder: only in it is a disk full, slow or read-only."""
    marks: Path
    """Where processes leave word of what they met; outside of the run's folder."""
    strikes: tuple[Strike, ...] = ()
    leave_out: int | None = None
    """The update after so many backward passes is left out: the reference for a batch that is refused."""
    rewinds: bool = False
    """With it torch's generator and the model's buffers are put back: as if the batch had never come."""

    def strikes_of(self, *kinds: DrillFault) -> tuple[Strike, ...]:
        """Those of these kinds."""
        return tuple(strike for strike in self.strikes if strike.fault.kind in kinds)

    def write(self, path: Path) -> None:
        """Leave them for :func:`read_orders`."""
        path.write_text(json.dumps(self._as_json()), "utf-8")

    def _as_json(self) -> dict[str, Any]:
        return {
            "run": str(self.run),
            "marks": str(self.marks),
            "leave_out": self.leave_out,
            "rewinds": self.rewinds,
            "strikes": [
                {
                    "fault": strike.fault.as_json(),
                    "event": strike.trigger.event,
                    "count": strike.trigger.count,
                    "key": strike.trigger.key,
                    "name": strike.name,
                }
                for strike in self.strikes
            ],
        }


def read_orders() -> Orders | None:
    """Those of this process; None where it is not drilled."""
    named = os.environ.get(ORDERS_VARIABLE)
    if not named:
        return None
    data = json.loads(Path(named).read_text("utf-8"))
    return Orders(
        run=Path(data["run"]),
        marks=Path(data["marks"]),
        leave_out=data["leave_out"],
        rewinds=data["rewinds"],
        strikes=tuple(
            Strike(
                fault=PlannedFault.from_json(one["fault"]),
                trigger=Trigger(event=Event(one["event"]), count=one["count"], key=one["key"]),
                name=one["name"],
            )
            for one in data["strikes"]
        ),
    )
