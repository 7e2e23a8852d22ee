"""A line to one tracker: a bounded queue and a thread, so that nobody waits for what hangs or is away.

What does not fit into the queue is dropped and counted, the oldest first. A call that raises is counted; the tracker is
begun anew before the next one, with growing patience. A thread that never comes back is left behind at the end.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial

from failsoft.artifacts.address import without_secrets
from failsoft.errors import ConfigError
from failsoft.health.backoff import BackoffPolicy
from failsoft.training.trackers.tracker import Ending, RunFacts, Tracker

_PATIENCE = BackoffPolicy(first_s=5.0, factor=2.0, cap_s=300.0)
_Call = Callable[[Tracker], None]


class TrackerLine:
    """Tells one tracker what happens, whenever it has time.

    Args:
        name: of the tracker, for people.
        open_it: makes the tracker; called in the line's own thread, and may raise.
        run: what it is told first.
        told: hears of the first failure in a row, in words; from the line's thread.
        most_waiting: calls that wait at most.
        patience: waits after failures in a row.
    """

    def __init__(
        self,
        name: str,
        open_it: Callable[[], Tracker],
        run: RunFacts,
        *,
        told: Callable[[str], object],
        most_waiting: int = 1000,
        patience: BackoffPolicy = _PATIENCE,
    ) -> None:
        if most_waiting < 1:
            raise ConfigError(f"most_waiting is {most_waiting}; let at least 1 call wait")
        self.name = name
        self.failures = 0
        self._open, self._run, self._told, self._patience = open_it, run, told, patience
        self._most_waiting = most_waiting
        self._waiting: deque[_Call] = deque()
        self._news, self._over = threading.Condition(), threading.Event()
        self._ending: Ending | None = None
        self._dropped = 0
        self._tracker: Tracker | None = None
        self._in_a_row = 0
        self._rng = random.Random(name)
        self._thread = threading.Thread(target=self._work, name=f"failsoft-tracker-{name}", daemon=True)

    @property
    def dropped(self) -> int:
        """Calls that the tracker never got: they did not fit, failed, or were left over at the end."""
        return self._dropped

    def start(self) -> None:
        """Begin to tell; raises RuntimeError where the system has no thread left."""
        self._thread.start()

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        """Metrics after so many updates; returns at once."""
        if values:
            self._put(lambda tracker, held=dict(values): tracker.numbers(step, held))  # type: ignore[misc]

    def happened(self, step: int, kind: str, why: str) -> None:
        """An event of the run; returns at once."""
        self._put(lambda tracker: tracker.happened(step, kind, why))

    def say_over(self, ending: Ending) -> None:
        """Say that nothing more comes; returns at once."""
        with self._news:
            self._ending = ending
            self._news.notify()
        self._over.set()

    def close(self, ending: Ending, *, within_s: float = 5.0) -> bool:
        """Say that nothing more comes, and wait for what was said, but not for ever; False when it was left behind."""
        self.say_over(ending)
        self._thread.join(within_s)
        with self._news:
            self._dropped += len(self._waiting)
            self._waiting.clear()
        return not self._thread.is_alive()

    def _put(self, call: _Call) -> None:
        with self._news:
            if len(self._waiting) >= self._most_waiting:
                self._waiting.popleft()
                self._dropped += 1
            self._waiting.append(call)
            self._news.notify()

    def _work(self) -> None:
        while (call := self._next()) is not None:
            if not self._made(call):
                with self._news:
                    self._dropped += 1
                self._over.wait(self._patience.wait_s(self._in_a_row, self._rng))
        if self._tracker is not None and self._ending is not None:
            self._made(partial(_end, ending=self._ending))

    def _next(self) -> _Call | None:
        """The next call; None when nothing more comes. One failure after the end is enough: nobody waits for more."""
        with self._news:
            while not self._waiting and self._ending is None:
                self._news.wait()
            if not self._waiting or (self._ending is not None and self._in_a_row > 1):
                return None
            return self._waiting.popleft()

    def _made(self, call: _Call) -> bool:
        try:
            if self._tracker is None:
                tracker = self._open()
                tracker.begin(self._run)
                self._tracker = tracker
            call(self._tracker)
        except Exception as error:  # noqa: BLE001 -- the boundary to anybody's tracker: it tells of a run, and must not end it
            self._failed(error)
            return False
        self._in_a_row = 0
        return True

    def _failed(self, error: Exception) -> None:
        self._tracker = None
        self.failures += 1
        self._in_a_row += 1
        if self._in_a_row == 1:
            why = without_secrets(str(error))  # libraries repeat the address that they could not reach
            self._told(f"{type(error).__name__}: {why[:300]}")


def _end(tracker: Tracker, *, ending: Ending) -> None:
    tracker.end(ending)
