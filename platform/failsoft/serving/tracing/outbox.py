"""Spans on their way to a collector: a bounded queue, and one thread that nobody waits for.

A collector that is down, slow, or answers nonsense costs requests nothing: what does not fit into the queue is dropped
and counted, and after a failure the thread rests for longer and longer. It is said once, and once when it is over.
"""

from __future__ import annotations

import atexit
import logging
import random
import threading
from collections import deque
from collections.abc import Callable, Sequence

from failsoft.health.backoff import BackoffPolicy
from failsoft.serving.tracing.config import TraceConfig
from failsoft.serving.tracing.spans import Bundle

_log = logging.getLogger(__name__)
Send = Callable[[Sequence[Bundle]], None]
"""Sends some spans, however long that takes; raises whatever it likes when they are not delivered."""

AT_ONCE = 128
"""Spans in one batch: writing them down holds Python for 5 ms, for which callers wait."""
_CLOSE_S = 1.0


class Outbox:
    """Takes spans from one thread and sends them from another.

    Args:
        config: sizes and times.
        send: sends them; called in the thread.
        rng: spreads rests.
    """

    def __init__(self, config: TraceConfig, send: Send, *, rng: random.Random) -> None:
        self._config, self._send, self._rng = config, send, rng
        self._rest = BackoffPolicy(first_s=config.every_s, factor=2.0, cap_s=max(60.0, config.every_s))
        self._waiting = deque[Bundle]()
        self._over = threading.Event()
        self._failures = 0
        self._offered = self._taken = 0  # each is written by one thread only, so neither needs a lock
        self._sent = self._dropped = self._not_delivered = 0
        self._thread = threading.Thread(target=self._run, name="failsoft-traces", daemon=True)

    def start(self) -> None:
        """Begin to send. What waits when the process ends is given a second."""
        self._thread.start()
        atexit.register(self.close)

    def offer(self, bundle: Bundle) -> None:
        """Queue spans if there is room; returns at once and never raises."""
        spans = len(bundle.spans)
        if self._offered - self._taken + spans > self._config.max_waiting_spans:
            self._dropped += spans
            return
        self._offered += spans
        self._waiting.append(bundle)

    @property
    def is_alive(self) -> bool:
        """Whether its thread is at work."""
        return self._thread.is_alive()

    def counts(self) -> dict[str, int]:
        """Spans by what became of them."""
        return {"sent": self._sent, "queue_full": self._dropped, "not_delivered": self._not_delivered}

    def close(self, *, within_s: float = _CLOSE_S) -> None:
        """Send what waits, if that takes no longer than ``within_s``; no thread holds the process after that."""
        atexit.unregister(self.close)
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(within_s)

    def _run(self) -> None:
        while not self._over.wait(max(self._config.every_s, self._rest.wait_s(self._failures, self._rng))):
            self._send_all()
        if not self._failures:
            self._send_all()

    def _send_all(self) -> None:
        """All that waits, in batches, up to the first that is not delivered."""
        while self._waiting:
            batch = self._next()
            spans = sum(len(bundle.spans) for bundle in batch)
            try:
                self._send(batch)
            except Exception as error:  # noqa: BLE001 -- the boundary to a foreign exporter: it tells of requests, and must not end them
                self._not_delivered += spans
                self._failed(error)
                return
            self._sent += spans
            if self._failures:
                self._failures = 0
                _log.warning("traces reach %s again", self._config.endpoint)

    def _next(self) -> list[Bundle]:
        batch, spans = list[Bundle](), 0
        while self._waiting and (not batch or spans + len(self._waiting[0].spans) <= AT_ONCE):
            batch.append(self._waiting.popleft())
            spans += len(batch[-1].spans)
        self._taken += spans
        return batch

    def _failed(self, error: Exception) -> None:
        self._failures += 1
        if self._failures == 1:
            _log.warning(
                "traces do not reach %s (%s); requests go on, spans that find no room are dropped and counted",
                self._config.endpoint,
                error,
            )
