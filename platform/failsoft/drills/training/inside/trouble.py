"""Whether the run's disk is full, slow or read-only just now; the same in every process of the trial."""

from __future__ import annotations

import errno
import math
import os
from pathlib import Path

from failsoft.drills.fault import DrillFault
from failsoft.drills.training.inside.marks import Marks
from failsoft.drills.training.inside.orders import Orders, Strike
from failsoft.health.clock import Clock

LASTS_S = 1.5
"""So long a disk is full or read-only, from the first call that meets it: an operator who clears it, or a quota that is
raised. Counted from the blow, it would be over before a script that writes once a minute noticed."""
SLOW_S = 0.3
"""So much longer each call takes on a slow disk."""
DISK_KINDS = (DrillFault.FULL_DISK, DrillFault.SLOW_DISK, DrillFault.READ_ONLY_DISK)
_ARMED = "armed"
_SAYS = {DrillFault.FULL_DISK: errno.ENOSPC, DrillFault.READ_ONLY_DISK: errno.EROFS}


class DiskTrouble:
    """Begins where it is struck, and ends by itself. Marks hold the monotonic time, which one machine shares."""

    def __init__(self, marks: Marks, orders: Orders, clock: Clock) -> None:
        self._marks = marks
        self._clock = clock
        self._strikes = orders.strikes_of(*DISK_KINDS)
        self._busy = False

    @property
    def planned(self) -> bool:
        """Whether there is any in this trial."""
        return bool(self._strikes)

    def begin(self, strike: Strike) -> None:
        """From now on; its time runs from the first call that meets it."""
        self._place(strike).write_text(_ARMED, "utf-8")

    @property
    def full(self) -> bool:
        """Whether what is written now stops halfway."""
        return any(strike.fault.kind is DrillFault.FULL_DISK for strike in self._now())

    def meet(self, *, makes: bool = True) -> None:
        """What a call on the run's folder meets.

        Args:
            makes: it needs space: what only removes is not refused by a full disk.

        Raises:
            OSError: the disk is full, or read-only.
        """
        if self._busy or not self._strikes:
            return
        self._busy = True  # looking at marks opens files
        try:
            now = [strike for strike in self._now() if makes or strike.fault.kind is not DrillFault.FULL_DISK]
            for strike in now:
                self._met(strike)
        finally:
            self._busy = False
        for strike in now:
            self._refuse(strike)

    def _met(self, strike: Strike) -> None:
        """Somebody meets it: its time begins, and the drill is told that it was no idle threat."""
        if self._marks.first(f"met-{strike.name}"):
            until_s = self._clock.monotonic_s() + strike.fault.number("lasts_s", LASTS_S)
            self._place(strike).write_text(repr(until_s), "utf-8")
            self._marks.say("met", name=strike.name)

    def _refuse(self, strike: Strike) -> None:
        kind = strike.fault.kind
        if kind is DrillFault.SLOW_DISK:
            self._clock.sleep_s(strike.fault.number("slow_s", SLOW_S))
        else:
            number = _SAYS[kind]
            raise OSError(number, os.strerror(number))

    def _place(self, strike: Strike) -> Path:
        return self._marks.file(f"disk-{strike.name}")

    def _now(self) -> list[Strike]:
        return [strike for strike in self._strikes if self._clock.monotonic_s() < self._until_s(strike)]

    def _until_s(self, strike: Strike) -> float:
        try:
            told = self._place(strike).read_text("utf-8")
            return math.inf if told == _ARMED else float(told)
        except (OSError, ValueError):
            return 0.0
