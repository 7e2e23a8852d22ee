"""How much may be inside at once. Beyond that even the fallback would keep callers waiting: 429.

Requests are counted before they are read, and what they ask for once it is known: two hundred requests of 64 texts each
would take the fallback seconds, though they are few.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from pydantic import BaseModel
from starlette.types import ASGIApp, Receive, Scope, Send

from failsoft.errors import ConfigError, SaturatedError
from failsoft.serving.web.messages import Ask
from failsoft.serving.web.problems import path_in_app, refusal

RETRY_AFTER_S = 1
"""A full gateway empties within a deadline, which is far below; HTTP counts whole seconds."""
ITEMS_EACH = 4
"""Items that one gateway holds for each request that it holds: of several in one request each costs the fallback a
quarter of what a request costs, so that a thousand are answered within a deadline of 250 ms."""


class Turnstile:
    """ASGI middleware: 429 with ``Retry-After`` for requests above ``max_inside``.

    Args:
        app: what lies behind.
        max_inside: requests inside at once.
        counts: whether requests of a path are counted; the others, operators' orders among them, always get through.
    """

    def __init__(self, app: ASGIApp, *, max_inside: int, counts: Callable[[str], bool]) -> None:
        if max_inside < 1:
            raise ConfigError(f"max_inside is {max_inside}; at least 1 request must be let in to be answered")
        self._app = app
        self._max_inside = max_inside
        self._counts = counts
        self._inside = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request in if there is room."""
        if scope["type"] != "http" or not self._counts(path_in_app(scope)):
            await self._app(scope, receive, send)
            return
        if self._inside >= self._max_inside:
            why = f"{self._inside} requests are being answered here, no more are taken; try again in {RETRY_AFTER_S} s"
            await refusal(scope, 429, why, {"Retry-After": str(RETRY_AFTER_S)})(scope, receive, send)
            return
        self._inside += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._inside -= 1


class Room:
    """Room for the items of all requests that are being answered.

    Args:
        answer: answers a request.
        max_items: items inside at once. Whoever comes into an empty gateway is let in with any number.
    """

    def __init__(self, answer: Callable[[Any], Awaitable[BaseModel]], *, max_items: int) -> None:
        self._answer = answer
        self._max_items = max_items
        self._inside = 0

    async def predict(self, request: Ask) -> BaseModel:
        """The answer to a request.

        Raises:
            SaturatedError: there is no room for all that it asks.
        """
        items = len(request.items)
        if self._inside and self._inside + items > self._max_items:
            raise SaturatedError(
                f"{self._inside} items are being answered here, {items} more are not taken; try again in "
                f"{RETRY_AFTER_S} s, or with fewer"
            )
        self._inside += items
        try:
            return await self._answer(request)
        finally:
            self._inside -= items
