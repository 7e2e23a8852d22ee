"""How many requests may be inside at once. Beyond that even the fallback would keep callers waiting: 429."""

from __future__ import annotations

from collections.abc import Collection

from starlette.types import ASGIApp, Receive, Scope, Send

from failsoft.errors import ConfigError
from failsoft.serving.web.problems import problem_answer

RETRY_AFTER_S = 1
"""A full gateway empties within a deadline, which is far below; HTTP counts whole seconds."""


class Turnstile:
    """ASGI middleware: 429 with ``Retry-After`` for requests above ``max_inside``.

    Args:
        app: what lies behind.
        max_inside: requests inside at once.
        paths: those that are counted; the others, operators' orders among them, always get through.
    """

    def __init__(self, app: ASGIApp, *, max_inside: int, paths: Collection[str]) -> None:
        if max_inside < 1:
            raise ConfigError(f"max_inside is {max_inside}; at least 1 request must be let in to be answered")
        self._app = app
        self._max_inside = max_inside
        self._paths = frozenset(paths)
        self._inside = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request in if there is room."""
        if scope["type"] != "http" or scope["path"].removeprefix(scope.get("root_path", "")) not in self._paths:
            await self._app(scope, receive, send)
            return
        if self._inside >= self._max_inside:
            why = f"{self._inside} requests are being answered here, no more are taken; try again in {RETRY_AFTER_S} s"
            headers = {"Retry-After": str(RETRY_AFTER_S)}
            await problem_answer(429, why, instance=scope["path"], headers=headers)(scope, receive, send)
            return
        self._inside += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._inside -= 1
