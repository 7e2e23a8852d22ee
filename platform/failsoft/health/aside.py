"""Errands to storage that are done in order by a thread beside the work: one waits for them while storage is quick."""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial

from failsoft.health.clock import Clock

_log = logging.getLogger(__name__)

PATIENCE_S = 1.0
"""Of the first errand that takes long: longer than a busy machine keeps a thread from its turn."""
SLOW_S = 0.1
"""Storage that took longer for its last errand is slow, and nobody waits for it until it was quick again."""
MOST_WAITING = 1000
"""Errands that wait for storage that hangs; events of a ledger, of 64 KiB each at most, are 64 MB then."""


class Aside:
    """Does what it is given, one after the other. Whoever gives it goes on when it is done, or when that takes long.

    So a process that is killed loses no errand on quick storage, and storage that is slow or hangs holds up the work
    once, for ``PATIENCE_S``. Where ``MOST_WAITING`` wait already, one more is turned away, and counted. A process that
    ends waits for what is still to be done. Where no thread can be had (the system has none left, or the process is
    ending), the errand is done by whoever gives it.

    Args:
        clock: measures how long errands take.
        waits: whether whoever gives an errand may wait for it; an event loop that answers callers never may. Then one
            for which no thread can be had is turned away, too.
    """

    def __init__(self, clock: Clock, *, waits: bool = True) -> None:
        self._clock = clock
        self._waits = waits
        self._begin()

    def _begin(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._home = os.getpid()
        self._one_by_one = threading.Lock()  # of those who give errands; never held while anybody waits
        self._waiting: deque[Future[None]] = deque()
        self._last_s = 0.0
        self.turned_away = 0
        """Errands that were never done, since too many waited, or no thread could be had."""

    def do(self, errand: Callable[[], None]) -> bool:
        """Have it done; what it raises is logged where a thread does it. False: turned away, and it never will be."""
        if self._home != os.getpid():  # a fork has no threads of its parent's
            self._begin()
        with self._one_by_one:
            self._forget_done()
            if len(self._waiting) >= MOST_WAITING:
                self.turned_away += 1
                return False
            is_quick = self._waits and self._last_s <= SLOW_S and not self._waiting
            given = self._given(errand)
            if given is None and not self._waits:
                self.turned_away += 1
                return False
        if given is None:
            self.settle()
            self._do(errand)
        elif is_quick:
            wait([given], timeout=PATIENCE_S)
        return True

    @property
    def waiting(self) -> int:
        """Errands that are not done, with the one that is being done."""
        with self._one_by_one:
            self._forget_done()
            return len(self._waiting)

    def settle(self, *, within_s: float | None = None) -> None:
        """Wait until all is done, or so long."""
        if self._home != os.getpid():
            return
        with self._one_by_one:
            newest = list(self._waiting)[-1:]
        wait(newest, timeout=within_s)

    def __reduce__(self) -> tuple[partial[Aside], tuple[Clock]]:
        """A copy in another process begins with a thread of its own."""
        return partial(Aside, waits=self._waits), (self._clock,)

    def _given(self, errand: Callable[[], None]) -> Future[None] | None:
        """On its way; None: no thread can be had, for which Python has no other word than a RuntimeError."""
        try:
            self._thread = self._thread or ThreadPoolExecutor(max_workers=1)
            given = self._thread.submit(self._do, errand)
        except RuntimeError:
            self._thread = None  # it may hold the errand, and would do it again
            return None
        given.add_done_callback(_say_what_it_raised)
        self._waiting.append(given)
        return given

    def _forget_done(self) -> None:
        while self._waiting and self._waiting[0].done():
            self._waiting.popleft()

    def _do(self, errand: Callable[[], None]) -> None:
        began_s = self._clock.monotonic_s()
        try:
            errand()
        finally:
            self._last_s = self._clock.monotonic_s() - began_s


def _say_what_it_raised(done: Future[None]) -> None:
    error = done.exception()
    if error is not None:
        _log.error("an errand to storage failed", exc_info=error)
