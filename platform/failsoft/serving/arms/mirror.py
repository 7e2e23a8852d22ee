"""Copies of live requests for a model under test: one bounded queue, one consumer, and never a word to the live path.

A task for each copy took the live p99 from 13 to 172 ms; one consumer with a bounded queue leaves it alone. A subject
that is slow then gets fewer copies, and how many it did not get is counted by reason.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from typing import Generic, TypeVar

from failsoft.errors import ConfigError

ItemT = TypeVar("ItemT")


class NotMirrored(StrEnum):
    """Why a copy did not reach the subject."""

    FULL = "full"
    """The queue was full: the subject is slower than the copies come."""
    FAILED = "failed"
    """Sending it raised."""
    UNREADABLE = "unreadable"
    """Nothing in the text can be read by the subject's release: there was nothing to copy."""


class MirrorQueue(Generic[ItemT]):
    """Holds copies until the one consumer has sent them.

    Args:
        size: copies that may wait; more are dropped, the newest first, so that those that wait stay a fair sample.
    """

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ConfigError(f"the mirror queue's size is {size}; it holds at least 1 copy")
        self._queue: asyncio.Queue[ItemT] = asyncio.Queue(size)
        self._dropped: Counter[NotMirrored] = Counter()
        self._last_error: str | None = None
        self.sent = 0

    @property
    def waiting(self) -> int:
        """Copies in the queue now."""
        return self._queue.qsize()

    @property
    def dropped(self) -> Mapping[NotMirrored, int]:
        """Copies that did not reach the subject, by reason."""
        return dict(self._dropped)

    @property
    def last_error(self) -> str | None:
        """Of which kind the newest failed sending was: its words may quote the copy, and statuses are shown to many."""
        return self._last_error

    def offer(self, item: ItemT) -> bool:
        """Queue a copy if there is room; returns at once and never raises."""
        try:
            self._queue.put_nowait(item)
        except asyncio.QueueFull:
            self._dropped[NotMirrored.FULL] += 1
            return False
        return True

    def skip(self, reason: NotMirrored) -> None:
        """Count a request that was chosen to be copied, of which no copy was made."""
        self._dropped[reason] += 1

    async def run(self, send: Callable[[ItemT], Awaitable[None]]) -> None:
        """Send copies one after the other until cancelled. ``send`` sets its own deadline."""
        while True:
            await self._send_one(await self._queue.get(), send)

    async def _send_one(self, item: ItemT, send: Callable[[ItemT], Awaitable[None]]) -> None:
        try:
            await send(item)
            self.sent += 1
        except Exception as error:  # noqa: BLE001 -- the consumer outlives whatever one copy does to the subject
            self._dropped[NotMirrored.FAILED] += 1
            self._last_error = error.__class__.__name__
