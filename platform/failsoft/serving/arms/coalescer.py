"""Requests of one gateway that come while a call is out travel together in the next one. Free of Ray.

A hop costs more than a small model, so fewer and larger calls are faster for everybody. An idle model is asked at once;
while calls are out, texts gather until one comes back, until there are enough, or for ``max_wait_ms`` at most. Each
text keeps its own deadline: a caller that gives up leaves, the others' call goes on, and one that nobody waits for any
more is cancelled, so that a hung call holds its place for one deadline only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from failsoft.errors import ConfigError, SaturatedError, ServingError

ReplyT = TypeVar("ReplyT")


class Timer(Protocol):
    """Something that will happen unless cancelled."""

    def cancel(self) -> None:
        """Let it not happen."""
        ...


Later = Callable[[float, Callable[[], None]], Timer]
"""Calls something back after so many seconds; an event loop's ``call_later``."""


@dataclass(frozen=True, kw_only=True)
class CoalescerPolicy:
    """How texts travel together."""

    max_wait_ms: float = 2.0
    """A text waits so long for company, while other calls are out; never when the model is idle."""
    max_texts: int = 16
    """Texts in one call."""
    max_chars: int = 4_000
    """Characters (or instances) in one call, unless one alone has more: a batch is as slow as its longest for all."""
    max_calls: int = 8
    """Calls out at once; texts that come then wait for one to return."""

    def __post_init__(self) -> None:
        """Refuse a policy under which nothing would travel, or callers wait for nothing."""
        if not 0.0 <= self.max_wait_ms <= 100.0:
            raise ConfigError(f"max_wait_ms is {self.max_wait_ms}; use 0 to 100 (2 suits: a hop takes as long)")
        for name in ("max_texts", "max_chars", "max_calls"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; a call carries at least 1")


@dataclass(frozen=True, kw_only=True)
class _Asked(Generic[ReplyT]):
    """A text or an instance that somebody waits for."""

    text: Any
    chars: int
    reply: asyncio.Future[ReplyT]


class Coalescer(Generic[ReplyT]):
    """Makes few calls of many questions. For one event loop.

    Args:
        call: asks about some texts at once and gives one reply for each, in order; cancelling it stops the call.
        policy: sizes and waits.
        max_held: texts waiting or out; more are refused at once.
        later: calls back after a time; the running loop's own unless given.
        weigh: how many characters a text has, or what an instance counts for; asked once for each. A raise is its
            asker's affair alone.
    """

    def __init__(
        self,
        call: Callable[[list[Any]], Awaitable[Sequence[ReplyT]]],
        *,
        policy: CoalescerPolicy | None = None,
        max_held: int = 64,
        later: Later | None = None,
        weigh: Callable[[Any], int] = len,
    ) -> None:
        if max_held < 1:
            raise ConfigError(f"max_held is {max_held}; at least 1 text must be held to be answered")
        self._call = call
        self._policy = policy or CoalescerPolicy()
        self._max_held = max_held
        self._later = later
        self._weigh = weigh
        self._waiting: deque[_Asked[ReplyT]] = deque()
        self._held = 0
        self._timer: Timer | None = None
        self._out: set[asyncio.Task[None]] = set()

    @property
    def held(self) -> int:
        """Texts waiting or out."""
        return self._held

    @property
    def calls_out(self) -> int:
        """Calls that have not come back."""
        return len(self._out)

    async def ask(self, text: Any) -> ReplyT:
        """The reply to one text; cancelling this leaves the others' call as it is.

        Raises:
            SaturatedError: as many texts as may be are waiting or out already.
            Exception: what weighing the text, or the call that carried it, raised.
        """
        if self._held >= self._max_held:
            raise SaturatedError(f"{self._held} texts of this gateway wait for it already")
        chars = self._weigh(text)
        reply: asyncio.Future[ReplyT] = asyncio.get_running_loop().create_future()
        self._held += 1
        self._waiting.append(_Asked(text=text, chars=chars, reply=reply))
        self._arrange()
        try:
            return await reply
        finally:
            self._held -= 1

    def _arrange(self) -> None:
        """See to it that what waits will be sent: at the end of this turn of the loop, or after the wait."""
        if self._timer is not None and len(self._waiting) != self._policy.max_texts:
            return
        if len(self._out) >= self._policy.max_calls:
            return  # the next call that comes back sends
        self._stop_timer()
        idle = not self._out or len(self._waiting) >= self._policy.max_texts
        self._timer = self._after(0.0 if idle else self._policy.max_wait_ms / 1000)

    def _after(self, wait_s: float) -> Timer:
        loop = asyncio.get_running_loop()
        if wait_s <= 0.0:
            return loop.call_soon(self._send)
        return (self._later or loop.call_later)(wait_s, self._send)

    def _send(self) -> None:
        """Send what waits, in as many calls as it needs and may have."""
        self._stop_timer()
        while self._waiting and len(self._out) < self._policy.max_calls:
            batch = self._next_batch()
            if not batch:
                break
            task = asyncio.get_running_loop().create_task(self._carry(batch), name="a call for several")
            self._out.add(task)
            unwanted = partial(_cancel_if_unwanted, batch, task)
            for asked in batch:
                asked.reply.add_done_callback(unwanted)
            task.add_done_callback(self._back)

    def _next_batch(self) -> list[_Asked[ReplyT]]:
        """The oldest texts that fit in one call; those whose caller has left are dropped."""
        batch: list[_Asked[ReplyT]] = []
        chars = 0
        while self._waiting and len(batch) < self._policy.max_texts:
            asked = self._waiting[0]
            if asked.reply.done():
                self._waiting.popleft()
                continue
            chars += asked.chars
            if batch and chars > self._policy.max_chars:
                break
            batch.append(self._waiting.popleft())
        return batch

    async def _carry(self, batch: list[_Asked[ReplyT]]) -> None:
        try:
            replies = await self._call([asked.text for asked in batch])
            if len(replies) != len(batch):
                raise ServingError(f"{len(replies)} replies came for {len(batch)} texts")
        except asyncio.CancelledError:  # whoever cancelled it, none of those who still wait has given up
            _fail(batch, ServingError("the call was cancelled"))
            raise
        except Exception as error:  # noqa: BLE001 -- handed to each who waits for it, and raised there
            _fail(batch, error)
            return
        for asked, reply in zip(batch, replies, strict=True):
            if not asked.reply.done():
                asked.reply.set_result(reply)

    def _back(self, task: asyncio.Task[None]) -> None:
        self._out.discard(task)
        if self._waiting:
            self._send()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _fail(batch: Sequence[_Asked[ReplyT]], error: Exception) -> None:
    for asked in batch:
        if not asked.reply.done():
            asked.reply.set_exception(error)


def _cancel_if_unwanted(
    batch: Sequence[_Asked[ReplyT]], task: asyncio.Task[None], _left: asyncio.Future[ReplyT]
) -> None:
    if not task.done() and all(asked.reply.cancelled() for asked in batch):
        task.cancel()
