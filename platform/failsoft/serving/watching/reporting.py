"""When a gateway replica tells the controller what its answers amounted to: soon, and at once when one was bad.

The controller's window over all replicas is only as fresh as its reports. A report goes out when the oldest answer in
it has waited for ``every_s``, whenever the report before was sent; the first bad answer does not wait at all, so that a
wave of bad answers that no replica notices alone is seen while it is small. Who has nothing to tell sends nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from failsoft.errors import ConfigError, FailsoftError
from failsoft.health.clock import Clock
from failsoft.serving.rollout.evidence import OutcomeBatch
from failsoft.serving.watching.outcomes import OutcomeBuffer

_SOON_S = 0.02
"""Reports keep this distance also in a wave of bad answers: 50 a second from one replica at most."""
_AWAY_S = 0.25
"""While the controller is away it is asked ever less often, down to this: each try makes a report, and a buffer holds
only so many; at 20 a second those of the first answers were given up after ten seconds."""
_WITHIN_S = 2.0
"""A report that is not acknowledged by then is sent again."""
_KEPT = 200

Send = Callable[[tuple[OutcomeBatch, ...]], Awaitable[None]]
"""Gives reports to the controller; returns once they are counted and judged. Raises FailsoftError or OSError."""


class Reporter:
    """Sends what a buffer holds.

    Args:
        buffer: what was counted; its ``on_record`` is to be :meth:`noticed`.
        send: how it travels.
        clock: measures how old an answer is when it is counted.
        every_s: a good answer waits at most so long before it is sent.
    """

    def __init__(self, buffer: OutcomeBuffer, send: Send, *, clock: Clock, every_s: float) -> None:
        if not every_s >= _SOON_S:
            raise ConfigError(f"every_s is {every_s}; reports keep {_SOON_S} s distance, use that or more")
        self._buffer, self._send, self._clock = buffer, send, clock
        self._every_s = every_s
        self._some, self._bad = asyncio.Event(), asyncio.Event()
        self._oldest_s: float | None = None
        self._lags_ms: deque[float] = deque(maxlen=_KEPT)

    def noticed(self, bad: bool) -> None:  # noqa: FBT001 -- the one thing that a buffer tells
        """An answer was counted, or a label that came for one, maybe long after the last answer."""
        if self._oldest_s is None:
            self._oldest_s = self._clock.monotonic_s()
            self._some.set()
        if bad:
            self._bad.set()

    async def run(self) -> None:
        """Report for ever; what does not get through is sent again with the next report."""
        again_s = self._every_s
        while True:
            await self._some.wait()
            await self._gather()
            if await self._report():
                again_s = self._every_s
                await asyncio.sleep(_SOON_S)
            else:
                await asyncio.sleep(again_s)
                again_s = max(again_s, min(2.0 * again_s, _AWAY_S))

    def status(self) -> dict[str, Any]:
        """How long the oldest answer of a report took to be counted and judged by the controller, lately."""
        if not self._lags_ms:
            return {"last_ms": None, "p95_ms": None, "max_ms": None, "reports": 0}
        ordered = sorted(self._lags_ms)
        return {
            "last_ms": round(self._lags_ms[-1], 1),
            "p95_ms": round(ordered[int(0.95 * len(ordered))], 1),
            "max_ms": round(ordered[-1], 1),
            "reports": len(ordered),
        }

    async def _gather(self) -> None:
        """Until the oldest answer has waited long enough, or one is bad."""
        waited_s = 0.0 if self._oldest_s is None else self._clock.monotonic_s() - self._oldest_s
        if not waited_s < self._every_s:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(self._every_s - waited_s):
                await self._bad.wait()

    async def _report(self) -> bool:
        """Send what there is; False when it did not get through."""
        self._some.clear()
        self._bad.clear()
        batches = self._buffer.pending()
        if not batches:
            return True
        oldest_s, self._oldest_s = self._oldest_s, None
        try:
            async with asyncio.timeout(_WITHIN_S):
                await self._send(batches)
        except (FailsoftError, OSError):  # TimeoutError is an OSError
            self._oldest_s = oldest_s
            self._some.set()
            return False
        self._buffer.arrived(batches)
        if oldest_s is not None:
            self._lags_ms.append((self._clock.monotonic_s() - oldest_s) * 1000)
        return True
