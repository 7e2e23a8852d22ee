"""How far the script of this process has come, and what is due there."""

from __future__ import annotations

import os
import re
from collections import Counter as Tally
from collections.abc import Iterator
from pathlib import Path

from failsoft.drills.training.inside.marks import Counter, Marks
from failsoft.drills.training.inside.orders import Event, Orders, Strike

_NUMBERS = re.compile(r"[0-9a-f]{6,}|\d+")


def key_of(how: str, path: Path, run: Path) -> str:
    """What a save is recognised by in another run: how and where, without numbers and random names."""
    return f"{how} {_NUMBERS.sub('#', path.relative_to(run).as_posix())}"


class Course:
    """Counts events of this process. Only rank 0 of several is struck, so that a fault strikes once."""

    def __init__(self, orders: Orders, marks: Marks) -> None:
        self.orders = orders
        self.marks = marks
        self._looks = 0
        self._saves: Tally[str] = Tally()
        self._counter: Counter | None = None
        self.strikes = orders.strikes if os.environ.get("RANK", "0") == "0" else ()

    @property
    def backwards(self) -> int:
        """Backward passes so far."""
        return 0 if self._counter is None else self._counter.value

    def met_backward(self) -> None:
        """One more is over; the first one makes this process the one that trains."""
        if self._counter is None:
            self._counter = Counter(self.marks)
            self.marks.say("trains")
        self._counter.add()

    def met_start(self) -> Iterator[Strike]:
        """What is due before the script begins."""
        yield from self._due(Event.START, 0)

    def met_forward(self) -> Iterator[Strike]:
        """What is due at a call with gradients on."""
        yield from self._due(Event.FORWARD, self.backwards)

    def met_look(self) -> Iterator[Strike]:
        """What is due at a call with gradients off."""
        self._looks += 1
        self.marks.say("look") if self._looks == 1 else None
        yield from self._due(Event.LOOK, self._looks - 1)

    def met_save(self, how: str, path: Path) -> Iterator[Strike]:
        """What is due when this file of the run is written or renamed."""
        key = key_of(how, path, self.orders.run)
        self._saves[key] += 1
        yield from self._due(Event.SAVE, self._saves[key] - 1, key)

    @property
    def looks(self) -> int:
        """Calls with gradients off so far."""
        return self._looks

    def _due(self, event: Event, count: int, key: str = "") -> Iterator[Strike]:
        for strike in self.strikes:
            at = strike.trigger
            if at.event is event and at.count == count and at.key == key and self.marks.first(strike.name):
                self.marks.say("struck", name=strike.name, kind=strike.fault.kind, on=event, backwards=self.backwards)
                yield strike
