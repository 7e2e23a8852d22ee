"""The short way for ordinary requests. Whatever is not quite ordinary goes the long way, so both answer the same.

FastAPI takes longer to find out what a request may hold than the gateway takes to answer it: at many callers it was
half of a gateway's time. Most requests are JSON of the documented form and nothing else; they are read by pydantic
straight from their bytes here. What does not fit is handed on untouched, to be refused in FastAPI's words.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from failsoft.errors import FailsoftError
from failsoft.serving.web.answer_headers import headers_of
from failsoft.serving.web.headers import request_id_of
from failsoft.serving.web.messages import Ask

_JSON = b"application/json"


class QuickDoor:
    """ASGI middleware: answers plain requests at one path by itself.

    Args:
        app: what lies behind, for all others.
        path: of the route.
        form: what a request holds; bytes that do not fit it go the long way.
        answer: answers a request.
        refuse: makes the answer to an error that ``answer`` raised on purpose; bugs pass through.
        long_way: names of headers, in lower case, that only the long way knows.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        path: str,
        form: type[Ask],
        answer: Callable[[Any], Awaitable[BaseModel]],
        refuse: Callable[[Request, Exception], Awaitable[Response]],
        long_way: frozenset[bytes] = frozenset(),
    ) -> None:
        self._app = app
        self._path = path
        self._form = form
        self._answer = answer
        self._refuse = refuse
        self._long_way = long_way

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a plain request; hand on any other."""
        if not self._is_plain(scope):
            await self._app(scope, receive, send)
            return
        message = await receive()
        request = self._read(message)
        if request is None:
            await self._app(scope, _again(message, receive), send)
            return
        if request.request_id is None:
            request = request.identified(request_id_of(scope["headers"]))
        try:
            answer = await self._answer(request)
        except FailsoftError as error:
            await (await self._refuse(Request(scope), error))(scope, receive, send)
            return
        await _send_json(send, answer.model_dump_json().encode(), headers_of(answer))

    def _is_plain(self, scope: Scope) -> bool:
        if scope["type"] != "http" or scope["method"] != "POST":
            return False
        if scope["path"].removeprefix(scope.get("root_path", "")) != self._path:
            return False
        kind = None
        for name, value in scope["headers"]:
            if name in self._long_way:
                return False
            if name == b"content-type" and kind is None:  # of several the first one counts, as behind this door
                kind = value
        return kind is not None and kind.partition(b";")[0].strip().lower() == _JSON

    def _read(self, message: Message) -> Ask | None:
        """The request in a message that holds the whole of it; None when it does not, or does not fit."""
        if message["type"] != "http.request" or message.get("more_body", False):
            return None
        try:
            return self._form.model_validate_json(message.get("body", b""))
        except ValidationError:
            return None


def _again(message: Message, receive: Receive) -> Receive:
    pending = [message]

    async def replay() -> Message:
        return pending.pop() if pending else await receive()

    return replay


async def _send_json(send: Send, body: bytes, said: Mapping[str, str]) -> None:
    headers = [(name.encode(), value.encode()) for name, value in said.items()]
    headers += [(b"content-length", str(len(body)).encode()), (b"content-type", _JSON)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
