"""An eye on what the way in costs. The gateway's own latencies begin behind it and can't see a slow ingress."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

import httpx

from failsoft.health.clock import Clock
from failsoft.health.within import within

PROBE_EVERY_S = 0.25
_PATIENCE_S = 5.0


class P99Watch:
    """Says once when the 99th percentile of the last probes is too high, and once when it is fine again.

    Args:
        limit_ms: above it the ingress is slow. A probe that had no answer counts as infinitely slow.
        window: probes that are looked at.
    """

    def __init__(self, *, limit_ms: float, window: int = 200) -> None:
        self._limit_ms = limit_ms
        self._latencies_ms: deque[float] = deque(maxlen=window)
        self._slow = False

    @property
    def p99_ms(self) -> float | None:
        """Of the window; None while it is not yet full: the p99 of a few is their worst."""
        if len(self._latencies_ms) < (self._latencies_ms.maxlen or 0):
            return None
        ordered = sorted(self._latencies_ms)
        return ordered[int(0.99 * len(ordered))]

    def record(self, latency_ms: float) -> str | None:
        """Count a probe; what is to be said now, if anything."""
        self._latencies_ms.append(latency_ms)
        p99_ms = self.p99_ms
        if p99_ms is None:
            return None
        slow = not p99_ms <= self._limit_ms
        if slow == self._slow:
            return None
        self._slow = slow
        if slow:
            return (
                f"the way in is slow: p99 of {len(self._latencies_ms)} probes is {p99_ms:.0f} ms, the limit "
                f"{self._limit_ms:.0f} ms; if the machine is not busy, try --ingress safe"
            )
        return f"the way in is fine again: p99 {p99_ms:.0f} ms"


class IngressProbe:
    """Asks ``/healthz`` through the ingress again and again, in a thread of its own.

    Args:
        url: of the ingress.
        watch: judges.
        say: gets its words.
        clock: measures.
    """

    def __init__(self, url: str, watch: P99Watch, say: Callable[[str], object], *, clock: Clock) -> None:
        self._url = url
        self._watch = watch
        self._say = say
        self._clock = clock
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ingress probe", daemon=True)

    def __enter__(self) -> IngressProbe:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        self._ended.set()
        self._thread.join(_PATIENCE_S)

    def _run(self) -> None:
        with httpx.Client(base_url=self._url, timeout=_PATIENCE_S) as client:
            while not self._ended.wait(PROBE_EVERY_S):
                words = self._watch.record(self._probe_ms(client))
                if words is not None:
                    self._say(words)

    def _probe_ms(self, client: httpx.Client) -> float:
        began_s = self._clock.monotonic_s()
        try:
            within(_PATIENCE_S, lambda: client.get("/healthz").raise_for_status())
        except (httpx.HTTPError, TimeoutError):
            return float("inf")
        return (self._clock.monotonic_s() - began_s) * 1000
