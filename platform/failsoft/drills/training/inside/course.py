"""How far the script of this process has come, and what is due there."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from failsoft.drills.training.inside.marks import BACKWARDS, LOOKS, Counter, Marks
from failsoft.drills.training.inside.orders import ATTEMPT_VARIABLE, Event, Orders, Strike

_NUMBERS = re.compile(r"[0-9a-f]{6,}|\d+")


def key_of(how: str, path: Path, run: Path) -> str:
    """What a save is recognised by in another run: how and where, without numbers and random names."""
    return f"{how} {without_numbers(path, run)}"


def without_numbers(path: Path, run: Path) -> str:
    """Its path in the run's folder, as it is in any other run."""
    return _NUMBERS.sub("#", path.relative_to(run).as_posix())


class Course:
    """Counts events of a trial, on from attempt to attempt, so that each fault comes to strike whatever came before.

    Only rank 0 of several is struck, so that a fault strikes once.
    """

    def __init__(self, orders: Orders, marks: Marks) -> None:
        self.orders = orders
        self.marks = marks
        self.attempt = int(os.environ.get(ATTEMPT_VARIABLE, "1"))
        self._backwards: Counter | None = None
        self._looks: Counter | None = None
        self._begun = marks.before(self.attempt, BACKWARDS)
        self.strikes = orders.strikes if os.environ.get("RANK", "0") == "0" else ()

    @property
    def backwards(self) -> int:
        """Backward passes so far, those of earlier attempts included."""
        return self._begun + (0 if self._backwards is None else self._backwards.value)

    @property
    def looks(self) -> int:
        """Calls with gradients off so far, by this process."""
        return 0 if self._looks is None else self._looks.value

    def met_backward(self) -> None:
        """One more is over; the first one makes this process the one that trains."""
        if self._backwards is None:
            self._backwards = Counter(self.marks, BACKWARDS, self.attempt)
            self.marks.introduce("trains")
        self._backwards.add()

    def met_start(self) -> Iterator[Strike]:
        """What is due before the script begins."""
        yield from self._due(Event.START, 0)

    def met_forward(self) -> Iterator[Strike]:
        """What is due at a call with gradients on."""
        yield from self._due(Event.FORWARD, self.backwards)

    def met_look(self) -> Iterator[Strike]:
        """What is due at a call with gradients off."""
        if self._looks is None:
            self._looks = Counter(self.marks, LOOKS, self.attempt)
        count = self._looks.before + self._looks.value
        self._looks.add()
        yield from self._due(Event.LOOK, count)

    def met_save(self, how: str, path: Path) -> Iterator[Strike]:
        """What is due when this file of the run is written or renamed."""
        key = key_of(how, path, self.orders.run)
        if any(strike.trigger.key == key for strike in self.strikes):
            done = sum(mark["what"] == "save" and mark["key"] == key for mark in self.marks.read())
            yield from self._due(Event.SAVE, done, key)

    def _due(self, event: Event, count: int, key: str = "") -> Iterator[Strike]:
        for strike in self.strikes:
            at = strike.trigger
            if at.event is event and at.count <= count and at.key == key and self.marks.first(strike.name):
                self.marks.say("struck", name=strike.name, kind=strike.fault.kind, on=event, backwards=self.backwards)
                yield strike
