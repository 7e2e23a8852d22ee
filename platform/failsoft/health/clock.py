"""Time, handed in. The only file that reads a real clock."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What failsoft needs of time. Monotonic and wall time are never mixed or compared."""

    def monotonic_s(self) -> float:
        """Seconds that never go back; meaningless outside this process."""
        ...

    def wall_s(self) -> float:
        """Seconds since the Unix epoch; may jump; for display and for files that people read."""
        ...

    def sleep_s(self, duration_s: float) -> None:
        """Wait for ``duration_s`` seconds of monotonic time."""
        ...


class SystemClock:
    """The machine's clock."""

    def monotonic_s(self) -> float:
        """Seconds since some point in the past; never goes back."""
        return time.monotonic()

    def wall_s(self) -> float:
        """Seconds since the Unix epoch."""
        return time.time()

    def sleep_s(self, duration_s: float) -> None:
        """Block this thread."""
        time.sleep(duration_s)


class ManualClock:
    """A clock that tests move by hand; ``sleep_s`` advances it and returns at once."""

    def __init__(self, *, monotonic_s: float = 0.0, wall_s: float = 1_700_000_000.0) -> None:
        self._monotonic_s = monotonic_s
        self._wall_s = wall_s

    def monotonic_s(self) -> float:
        """The hand-set monotonic time."""
        return self._monotonic_s

    def wall_s(self) -> float:
        """The hand-set wall time."""
        return self._wall_s

    def sleep_s(self, duration_s: float) -> None:
        """Advance both clocks instead of waiting."""
        self.advance(duration_s)

    def advance(self, duration_s: float) -> None:
        """Let ``duration_s`` seconds pass on both clocks."""
        self._monotonic_s += duration_s
        self._wall_s += duration_s

    def jump_wall(self, by_s: float) -> None:
        """Set the wall clock forward or back, as NTP or an operator would; monotonic time goes on as before."""
        self._wall_s += by_s
