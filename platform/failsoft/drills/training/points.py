"""Where in a script a phase is: worked out from what its quiet run met. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from failsoft.drills.fault import Phase, PlannedFault
from failsoft.drills.training.inside.orders import Event, Trigger

_PREFERRED = ("torch.save", "save_file", "open", "rename")
"""Of saves of the same size: what can be struck in its middle goes first."""


@dataclass(frozen=True, kw_only=True)
class Observed:
    """What the quiet run met."""

    backwards: int
    looks: int
    """Calls with gradients off, by the process that trains."""
    saves: tuple[Mapping[str, Any], ...]
    """Marks of files that were written or renamed, oldest first."""
    processes: int
    """1: the process that the user starts is the one that trains."""

    @property
    def saved_below(self) -> str:
        """Where the largest files lie, without numbers; "" where none is saved."""
        return (self.save_key or "").partition(" ")[2]

    @property
    def save_key(self) -> str | None:
        """Of the largest files that are written after training began; None where none is."""
        sizes: dict[str, int] = defaultdict(int)
        for mark in self.saves:
            if mark["backwards"] > 0 or self.processes > 1 or mark["key"].startswith("rename"):
                sizes[mark["key"]] = max(sizes[mark["key"]], int(mark["bytes"]))
        return min(sizes, key=lambda key: (-sizes[key], _rank(key), key), default=None)


def observed(marks: Sequence[Mapping[str, Any]], counts: Mapping[tuple[int, int], int]) -> Observed:
    """What the marks of a run say."""
    mains = [mark["pid"] for mark in marks if mark["what"] == "main"]
    trains = {mark["pid"] for mark in marks if mark["what"] == "trains"}
    looks = [int(mark["looks"]) for mark in marks if mark["what"] == "end"]
    return Observed(
        backwards=max(counts.values(), default=0),
        looks=max(looks, default=0),
        saves=tuple(mark for mark in marks if mark["what"] == "save"),
        processes=len(trains | set(mains)),
    )


def point_of(fault: PlannedFault, met: Observed) -> Trigger | None:
    """Where this fault strikes; None where the script has no such phase."""
    if fault.phase is Phase.START:
        return Trigger(event=Event.START)
    if fault.phase is Phase.FIRST_STEP:
        return Trigger(event=Event.FORWARD) if met.backwards else None
    if fault.phase is Phase.TRAINING:
        count = int(met.backwards * (0.4 + 0.4 * fault.at))  # behind the first saves, before the last ones
        return Trigger(event=Event.FORWARD, count=count) if met.backwards > 1 else None
    if fault.phase is Phase.VALIDATION:
        return Trigger(event=Event.LOOK, count=int((met.looks - 1) * fault.at)) if met.looks else None
    if fault.phase is Phase.SAVING:
        return _save_point(fault, met)
    return None


def _save_point(fault: PlannedFault, met: Observed) -> Trigger | None:
    key = met.save_key
    if key is None:
        return None
    last = sum(mark["key"] == key for mark in met.saves) - 1
    count = max(min(1, last), int(last * (2.0 * fault.at - 1.0)))  # early: a slow disk may make fewer saves than before
    return Trigger(event=Event.SAVE, count=count, key=key)


def _rank(key: str) -> int:
    how = key.partition(" ")[0]
    return _PREFERRED.index(how) if how in _PREFERRED else len(_PREFERRED)
