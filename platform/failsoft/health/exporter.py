"""Looks at what there is to tell, and hands it to the exporter, every few seconds and off every hot path.

It tells of work that others do, so whatever fails here ends nothing: a failure is counted and told once, and after
some in a row the exporter rests for longer and longer before it tries again.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from failsoft.errors import ConfigError
from failsoft.health.backoff import BackoffPolicy
from failsoft.health.clock import Clock
from failsoft.health.ledger import Side
from failsoft.health.metric_book import MetricBook, Sink
from failsoft.health.metric_table import EXPORTER_FAILURES, EXPORTER_TIME

_log = logging.getLogger(__name__)

EVERY_S = 5.0
"""Ray reports to its exporter every 10 s, and forgets gauges that were not told for 20 s."""
_REST = BackoffPolicy(first_s=EVERY_S, factor=2.0, cap_s=600.0)
_SLICE = 100
"""So many calls, some 0.2 ms, are made before an event loop gets its turn."""
_JOIN_S = 5.0


class Exporter:
    """Exports one process's numbers.

    Args:
        book: what was noted.
        sink: makes where they go, at the first export: it may need a connection that comes up only by then.
        look: notes what is to be looked up; called before each export.
        side: whose it is.
        clock: measures what it costs.
        every_s: between two exports.
    """

    def __init__(
        self,
        book: MetricBook,
        sink: Callable[[], Sink],
        look: Callable[[], object],
        *,
        side: Side,
        clock: Clock,
        every_s: float = EVERY_S,
    ) -> None:
        if not every_s > 0.0:
            raise ConfigError(f"every_s is {every_s}; use a time above 0 s")
        self._book, self._make_sink, self._look = book, sink, look
        self._side, self._clock, self._every_s = side, clock, every_s
        self._sink: Sink | None = None
        self._rng = random.Random(f"exporter of {side}")
        self._spent_s = 0.0
        self.failures_in_a_row = 0
        book.count(EXPORTER_FAILURES, side, by=0.0)

    @property
    def wait_s(self) -> float:
        """Until the next export."""
        return max(self._every_s, _REST.wait_s(self.failures_in_a_row, self._rng))

    def export(self) -> bool:
        """One look and one export, at once; False when something in it failed. Never raises."""
        return all(self._slices())

    async def run(self) -> None:
        """Export for ever, between two turns of the event loop at most 100 calls."""
        while True:
            for _ in self._slices():
                await asyncio.sleep(0.0)
            await asyncio.sleep(self.wait_s)

    @contextmanager
    def exporting(self) -> Iterator[None]:
        """Export for the time of the block in a thread of its own, and once more at its end."""
        over = threading.Event()

        def work() -> None:
            self.export()
            while not over.wait(self.wait_s):
                self.export()
            self.export()

        thread = threading.Thread(target=work, name="failsoft-metrics", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the system has no thread left: the run that it tells of goes on
            self._failed(error)
            yield
            return
        try:
            yield
        finally:
            over.set()
            thread.join(_JOIN_S)

    def _slices(self) -> Iterator[bool]:
        """One look and one export in pieces; True after each, False when it ends with a failure."""
        began_s = self._clock.monotonic_s()
        try:
            self._look()
            yield self._spent_since(began_s)
            self._sink = self._sink or self._make_sink()
            began_s = self._clock.monotonic_s()
            for number, _ in enumerate(self._book.drain(self._sink), start=1):
                if number % _SLICE == 0:
                    yield self._spent_since(began_s)
                    began_s = self._clock.monotonic_s()
            self._spent_since(began_s)
        except Exception as error:  # noqa: BLE001 -- the boundary to Ray's exporter and to files: it tells of work, and must not end it
            self._failed(error)
            yield False
        else:
            self.failures_in_a_row = 0

    def _spent_since(self, began_s: float) -> bool:
        self._book.count(EXPORTER_TIME, self._side, by=max(0.0, self._clock.monotonic_s() - began_s))
        return True

    def _failed(self, error: Exception) -> None:
        self.failures_in_a_row += 1
        self._book.count(EXPORTER_FAILURES, self._side)
        if self.failures_in_a_row == 1:
            _log.warning("metrics of %s are not exported: %s: %s", self._side, type(error).__name__, error)
