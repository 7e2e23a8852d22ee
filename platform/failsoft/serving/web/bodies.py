"""Bounds the size of request bodies before anything reads them whole, and stops the work of callers who have left."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from failsoft.serving.web.problems import refusal

_LISTEN_AFTER_S = 0.02
"""Most answers are out by then: a task that listens to each of their callers would cost more than it ever saves."""
WHOLE_WITHIN_S = 30.0
"""A megabyte over 280 kbit/s. A body that comes a byte at a time would hold its connection, and what came, for ever."""


class BodyLimit:
    """ASGI middleware: 413 for a body above ``max_bytes``, by its announced length or as it arrives.

    One that is not there after ``whole_within_s`` is 408.

    Once the body is there nothing more can come but the news that the caller has left: where the answer takes longer
    than ``listen_after_s``, it is listened for, and cancels the work, down to the call of the model.
    """

    def __init__(
        self,
        app: ASGIApp,
        max_bytes: int,
        *,
        listen_after_s: float = _LISTEN_AFTER_S,
        whole_within_s: float = WHOLE_WITHIN_S,
    ) -> None:
        self._app = app
        self._whole_within_s = whole_within_s
        self._max_bytes = max_bytes
        self._listen_after_s = listen_after_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand the request on if its body is small enough."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        reading, body, patience = True, None, asyncio.timeout(self._whole_within_s)
        try:
            async with patience:
                body = None if _above(_announced(scope), self._max_bytes) else await self._read(receive)
                reading = False
                if body is not None:
                    patience.reschedule(None)
                    await self._while_the_caller_stays(body, scope, receive, send, patience)
        except TimeoutError:
            if reading:
                why = f"the body was not there after {self._whole_within_s:g} s; send it faster, or fewer texts"
                await refusal(scope, 408, why, {"Connection": "close"})(scope, receive, send)
            elif not patience.expired():
                raise
            return
        if body is None:
            why = f"the body is larger than {self._max_bytes} bytes; send fewer or shorter texts"
            await refusal(scope, 413, why)(scope, receive, send)

    async def _while_the_caller_stays(
        self, body: bytes, scope: Scope, receive: Receive, send: Send, patience: asyncio.Timeout
    ) -> None:
        """``patience`` ends when the caller leaves: another timeout for that would cost each request once more."""
        listening = set[asyncio.Task[None]]()
        timer = asyncio.get_running_loop().call_later(self._listen_after_s, _listen, listening, receive, patience)
        try:
            await self._app(scope, _replay(body), send)
        finally:
            timer.cancel()
            for task in listening:
                task.cancel()

    async def _read(self, receive: Receive) -> bytes | None:
        """The whole body; None when it grew too large."""
        pieces: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] != "http.request":  # the client went away: the app sees what came
                return b"".join(pieces)
            pieces.append(message.get("body", b""))
            size += len(pieces[-1])
            if size > self._max_bytes:
                return None
            if not message.get("more_body", False):
                return b"".join(pieces)


def _listen(listening: set[asyncio.Task[None]], receive: Receive, patience: asyncio.Timeout) -> None:
    listening.add(asyncio.create_task(_until_left(receive, patience), name="whether the caller has left"))


async def _until_left(receive: Receive, patience: asyncio.Timeout) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    patience.reschedule(asyncio.get_running_loop().time())


def _announced(scope: Scope) -> bytes:
    """The announced length; of several the first."""
    for name, value in scope["headers"]:
        if name == b"content-length":
            return bytes(value)
    return b"0"


def _above(announced: bytes, limit: int) -> bool:
    return announced.isdigit() and int(announced[:20]) > limit


def _replay(body: bytes) -> Receive:
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        if not pending:  # nothing more comes; when the caller leaves, whoever waits here is cancelled
            await asyncio.get_running_loop().create_future()
        return pending.pop()

    return replay
