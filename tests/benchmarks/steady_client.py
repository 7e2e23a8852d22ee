"""Load at a rate that does not change: what a server spends can then be compared from one moment to the next.

In a closed loop a slower server is asked less, and what it does beside its answers shows in nothing but the noise of a
clock on the wall. Here it is asked as often with as without it.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.benchmarks.load_client import Connection, bodies, source_of

_CLIENTS = 16


class Steady:
    """What has come back so far; read from any thread.

    Args:
        rate_hz: requests a second, sent by the clock whatever has been answered, as long as a connection is free.
    """

    def __init__(self, rate_hz: float) -> None:
        self.rate_hz = rate_hz
        self.answered = 0
        self.by_the_model = 0
        self.skipped = 0
        """Requests that found no free connection: the server can't keep up."""
        self._over = threading.Event()

    def take(self, _connection: Connection, status: int, body: bytes) -> None:
        """An answer."""
        self.answered += status == 200
        self.by_the_model += source_of(body) == "primary"

    async def _ask(self, host: str, port: int) -> None:
        loop, requests = asyncio.get_running_loop(), itertools.cycle(bodies(host))
        opened = [(await loop.create_connection(lambda: Connection(self.take), host, port))[1] for _ in range(_CLIENTS)]
        turns, at_s = itertools.cycle(opened), loop.time()
        while not self._over.is_set():
            free = next((one for one in itertools.islice(turns, _CLIENTS) if one.open and not one.out), None)
            if free is None:
                self.skipped += 1
            else:
                free.send(next(requests))
            at_s += 1.0 / self.rate_hz
            await asyncio.sleep(max(0.0, at_s - loop.time()))
        for one in opened:
            one.close()

    @contextmanager
    def asking(self, host: str, port: int) -> Iterator[None]:
        """For the time of the block, from a thread."""
        thread = threading.Thread(target=lambda: asyncio.run(self._ask(host, port)), daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join(30.0)
