"""Time, handed in. The only file that reads a real clock."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Protocol

_WAITED = Path("/proc/thread-self/schedstat")
"""Linux: nanoseconds on a processor, nanoseconds of waiting for one, turns."""


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


class WorkingTime(SystemClock):
    """Time in which the calling thread was not kept waiting for a processor by others; differences of one thread only.

    It tells a slow model from a busy machine: beside six busy neighbours on two cores a call of 14 ms took 390 ms by
    the clock, and 14 ms by this one. Sleep, the disk, locks and a GPU count as work. Helper threads (OpenMP) that wait
    for a processor are not seen; Ray gives a replica of one CPU one thread. Where the system does not tell (no Linux),
    this is plain time.
    """

    def __init__(self, waited: Path = _WAITED) -> None:
        self._waited = waited
        self._threads = threading.local()

    def monotonic_s(self) -> float:
        """Monotonic time less what this thread has waited for a processor so far."""
        return super().monotonic_s() - self._waited_s()

    def _waited_s(self) -> float:
        file: _ThreadFile | None = getattr(self._threads, "file", None)
        if file is None:
            file = self._threads.file = _ThreadFile(self._waited)
        return file.waited_s()


class _ThreadFile:
    """The calling thread's own file, open for as long as the thread lives: opening it takes longer than reading it."""

    def __init__(self, path: Path) -> None:
        try:
            self._handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._handle = -1

    def __del__(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)

    def waited_s(self) -> float:
        """Seconds; 0.0 where nobody tells."""
        if self._handle < 0:
            return 0.0
        try:
            return int(os.pread(self._handle, 96, 0).split()[1]) / 1e9
        except (OSError, ValueError, IndexError):
            return 0.0


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
