"""Bounds the size of request bodies before anything reads them whole."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from failsoft.serving.messages import problem


class BodyLimit:
    """ASGI middleware: 413 for a body above ``max_bytes``, by its announced length or as it arrives."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand the request on if its body is small enough."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = Headers(scope=scope).get("content-length", "0")
        body = None if _above(announced, self._max_bytes) else await self._read(receive)
        if body is None:
            refusal = problem(413, f"the body is larger than {self._max_bytes} bytes; send fewer or shorter texts")
            await JSONResponse(refusal, 413, media_type="application/problem+json")(scope, receive, send)
            return
        await self._app(scope, _replay(body, receive), send)

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


def _above(announced: str, limit: int) -> bool:
    return announced.isdecimal() and int(announced[:20]) > limit


def _replay(body: bytes, receive: Receive) -> Receive:
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return pending.pop() if pending else await receive()

    return replay
