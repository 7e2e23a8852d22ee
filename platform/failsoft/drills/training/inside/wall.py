"""The wall clock of this process jumps; its monotonic one does not, as with NTP or a leap of a virtual machine.

Only what Python's ``time.time`` and ``time.time_ns`` tell; ``datetime.now`` asks the machine itself.
"""

from __future__ import annotations

import time

from failsoft.drills.training.inside.orders import Strike

JUMP_S = -3600.0
"""An hour back: what breaks ages and timeouts that are taken from the wall clock."""


class WallClock:
    """The clock as the script sees it."""

    def __init__(self) -> None:
        self._time, self._time_ns = time.time, time.time_ns
        self._jump_s = 0.0

    def install(self) -> None:
        """From here on ``time.time`` can jump."""
        time.time = self._told
        time.time_ns = lambda: self._time_ns() + int(self._jump_s * 1e9)

    def jump(self, strike: Strike) -> None:
        """Jump once more."""
        self._jump_s += strike.fault.number("jump_s", JUMP_S)

    def _told(self) -> float:
        return self._time() + self._jump_s
