"""A look at what may keep its looker waiting for ever (storage that hangs, a cluster that is away), in its own thread.

The watchdog must not wait with it: it would itself be taken for dead, and a healthy worker be ended for a disk.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from failsoft.errors import TrainingError
from failsoft.health.clock import Clock
from failsoft.health.ledger import Ledger
from failsoft.training.survival.stacks import innermost
from failsoft.training.survival.watch_policy import WatchPolicy

_log = logging.getLogger(__name__)


class Lookout:
    """Looks now and then. What it waits for is judged from another thread, by :meth:`overdue`.

    Args:
        what: one look.
        clock: times it, monotonic.
        tick_s: between two looks.
        limit_s: a look that takes longer stands still.
        tell: called after such a look, on its thread: how long it took in seconds, and where it stood.
    """

    def __init__(
        self,
        what: Callable[[], object],
        clock: Clock,
        *,
        tick_s: float,
        limit_s: float,
        tell: Callable[[float, str], object],
    ) -> None:
        self._what = what
        self._clock = clock
        self._tick_s = tick_s
        self._limit_s = limit_s
        self._tell = tell
        self._thread: int | None = None
        self._looks = 0
        self._looking = False
        self._judged: tuple[int, float] = (0, clock.monotonic_s())
        self._waited_s = 0.0
        self._stood_at = ""
        self.dead = False
        """It raised, which no look may; nobody looks any more."""

    def start(self, over: threading.Event) -> None:
        """Look at each tick, until ``over`` is set; who stands still then is left behind."""
        threading.Thread(target=self._keep_looking, args=(over,), name="failsoft-lookout", daemon=True).start()

    def look(self) -> None:
        """Look once, on the caller's thread."""
        self._thread, self._looks, self._looking = threading.get_ident(), self._looks + 1, True
        began_s = self._clock.monotonic_s()
        try:
            self._what()
        finally:
            self._looking = False
        if self._stood_at:
            where, self._stood_at = self._stood_at, ""
            self._tell(self._clock.monotonic_s() - began_s, where)

    def overdue(self) -> str:
        """Where the look at hand stands still, said once for each look; "" otherwise. Touches nothing but memory.

        Asked less often than each tick (a process that was frozen and thawed), it counts two ticks at most.
        """
        looks, judged_s = self._judged
        now_s = self._clock.monotonic_s()
        self._judged = (self._looks, now_s)
        same = self._looking and looks == self._looks
        self._waited_s = self._waited_s + min(now_s - judged_s, 2.0 * self._tick_s) if same else 0.0
        if self._stood_at or self._waited_s <= self._limit_s:
            return ""
        self._stood_at = innermost(self._thread) or "no call"
        return self._stood_at

    def _keep_looking(self, over: threading.Event) -> None:
        try:
            while not over.wait(self._tick_s):
                self.look()
        finally:
            self.dead = not over.is_set()


class Lookouts:
    """All of one worker.

    Args:
        whats: what each looks at.
        ledger: told of a look that stood still, once it has returned: it may lie on the very storage.
        clock: times looks.
        rank: of the worker.
        policy: the limits.
    """

    def __init__(
        self, whats: Sequence[Callable[[], object]], *, ledger: Ledger, clock: Clock, rank: int, policy: WatchPolicy
    ) -> None:
        self._ledger = ledger
        self._rank = rank
        self._limit_s = policy.look_s
        self._all = [
            Lookout(what, clock, tick_s=policy.tick_s, limit_s=policy.look_s, tell=self._tell) for what in whats
        ]

    def start(self, over: threading.Event) -> None:
        """Each on a thread of its own, until ``over`` is set."""
        for lookout in self._all:
            lookout.start(over)

    def look(self) -> None:
        """Each once, on the caller's thread."""
        for lookout in self._all:
            lookout.look()

    def judge(self) -> None:
        """Log whoever stands still. Touches no storage but the log's.

        Raises:
            TrainingError: a look raised; nobody would hear of a notice any more.
        """
        if any(lookout.dead for lookout in self._all):
            raise TrainingError("a look around raised (the log says what), so nobody would hear a notice to leave")
        for where in filter(None, [lookout.overdue() for lookout in self._all]):
            _log.warning(
                "rank %d: a look at storage or at the cluster has not returned for %g s, in %s; training goes on",
                self._rank,
                self._limit_s,
                where,
            )

    def _tell(self, took_s: float, where: str) -> None:
        why = f"a look at storage or at the cluster took {took_s:.0f} s, in {where}; nobody was ended for it"
        self._ledger.record("storage_hung", why, rank=self._rank, took_s=round(took_s, 3))
