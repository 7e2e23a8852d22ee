"""Callers of an app, as many as a test wants, until it has seen enough."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import httpx

_PAUSE_S = 0.02


@contextmanager
def callers(url: str, texts: Sequence[str], *, count: int = 4, pause_s: float = _PAUSE_S) -> Iterator[Counter[int]]:
    """Ask for the time of the block; statuses of the answers so far."""
    statuses, over = Counter[int](), threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(_ask(url, texts, (count, pause_s), statuses, over)))
    thread.start()
    try:
        yield statuses
    finally:
        over.set()
        thread.join(60.0)


async def _ask(
    url: str, texts: Sequence[str], load: tuple[int, float], statuses: Counter[int], over: threading.Event
) -> None:
    count, pause_s = load
    some = itertools.cycle(texts)
    limits = httpx.Limits(max_connections=count)
    async with httpx.AsyncClient(base_url=url, limits=limits, timeout=60.0) as http:

        async def one() -> None:
            while not over.is_set():
                answer = await http.post("/v1/predict", json={"text": next(some)})
                statuses[answer.status_code] += 1
                await asyncio.sleep(pause_s)

        await asyncio.gather(*(one() for _ in range(count)))
