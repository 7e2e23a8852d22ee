"""One thread for a rollout: it decides and stores in order, and nobody who asks meanwhile waits for a disk.

A plan is made durable before it is true, so a move takes as long as storage does. That is the mover's time, and no one
else's: plans are read, polls answered and labels passed on by the event loop while this thread waits for a disk that
hangs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from failsoft.health.clock import Clock

ResultT = TypeVar("ResultT")


class Desk:
    """Does what it is given, one after the other, in a thread of its own.

    Args:
        clock: tells for how long it has been at one thing.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rollout")
        self._since_s: float | None = None

    @property
    def busy_s(self) -> float:
        """For how long it has been at what it does now; 0.0: at nothing."""
        since_s = self._since_s
        return 0.0 if since_s is None else self._clock.monotonic_s() - since_s

    async def do(self, work: Callable[[], ResultT]) -> ResultT:
        """Have it done after all that was given before, and wait for it; raises what it raises.

        Whoever stops waiting does not stop the work: half a move is none.
        """
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._done, work)

    def close(self) -> None:
        """Wait for what is being done, and begin nothing more."""
        self._thread.shutdown(cancel_futures=True)

    def _done(self, work: Callable[[], ResultT]) -> ResultT:
        self._since_s = self._clock.monotonic_s()
        try:
            return work()
        finally:
            self._since_s = None
