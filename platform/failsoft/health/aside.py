"""Errands to storage that are done in order by a thread beside the work: one waits for them while storage is quick."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

from failsoft.health.clock import Clock

PATIENCE_S = 1.0
"""Of the first errand that takes long: longer than a busy machine keeps a thread from its turn."""
SLOW_S = 0.1
"""Storage that took longer for its last errand is slow, and nobody waits for it until it was quick again."""


class Aside:
    """Does what it is given, one after the other. Whoever gives it goes on when it is done, or when that takes long.

    So a process that is killed loses no errand on quick storage, and storage that is slow or hangs holds up the work
    once, for ``PATIENCE_S``. A process that ends waits for what is still to be done. Where no thread can be had (the
    system has none left, or the process is ending), the errand is done by whoever gives it.

    Args:
        clock: measures how long errands take.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._thread: ThreadPoolExecutor | None = None
        self._home = os.getpid()
        self._newest: Future[None] | None = None
        self._last_s = 0.0

    def do(self, errand: Callable[[], None]) -> None:
        """Have it done; what it raises is lost where a thread does it."""
        if self._thread is None or self._home != os.getpid():  # a fork has no threads of its parent's
            self._thread, self._home, self._newest = ThreadPoolExecutor(max_workers=1), os.getpid(), None
        is_quick = self._last_s <= SLOW_S and (self._newest is None or self._newest.done())
        try:
            self._newest = self._thread.submit(self._do, errand)
        except RuntimeError:  # no thread: Python has no other word for it
            self.settle()
            self._thread = None  # it may hold the errand, and would do it again
            self._do(errand)
            return
        if is_quick:
            wait([self._newest], timeout=PATIENCE_S)

    def settle(self, *, within_s: float | None = None) -> None:
        """Wait until all is done, or so long."""
        if self._newest is not None and self._home == os.getpid():
            wait([self._newest], timeout=within_s)

    def __getstate__(self) -> dict[str, object]:
        """A copy in another process begins with a thread of its own."""
        return self.__dict__ | {"_thread": None, "_newest": None}

    def _do(self, errand: Callable[[], None]) -> None:
        began_s = self._clock.monotonic_s()
        try:
            errand()
        finally:
            self._last_s = self._clock.monotonic_s() - began_s
