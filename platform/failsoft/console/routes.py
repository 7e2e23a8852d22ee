"""The console's page and its routes, mounted into a gateway's app.

The page itself holds no secret and needs no token; what the ledger says, and every order, wants the operator's.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from importlib.resources import files
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, HTTPException, Query, Response
from fastapi.responses import StreamingResponse

from failsoft.console.feed import Feed
from failsoft.errors import NotAuthorizedError
from failsoft.health.clock import SystemClock
from failsoft.health.ledger import Side
from failsoft.serving.web.mounting import Mounted

_log = logging.getLogger(__name__)
_EVERY_S = 1.0
MAX_VIEWERS = 32
_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def mount(app: FastAPI, mounted: Mounted) -> None:
    """Add the page, its live feed and the search of the ledger."""
    feed = Feed(mounted.home, status=mounted.status, rollout=mounted.rollout, clock=SystemClock())
    viewers = Viewers(feed)

    @app.get("/console", include_in_schema=False)
    async def page() -> Response:
        return _asset("index.html")

    @app.get("/console/{name}", include_in_schema=False)
    async def part(name: str) -> Response:
        if name not in {"console.css", "console.js"}:
            raise HTTPException(404, f"the console has no {name[:50]!r}")
        return _asset(name)

    @app.get("/v1/console/live", include_in_schema=False)
    async def live() -> Response:
        if viewers.count >= MAX_VIEWERS:
            raise HTTPException(429, f"{MAX_VIEWERS} look already; close one", headers={"Retry-After": "5"})
        return StreamingResponse(viewers.watch(), media_type="text/event-stream", headers=HEADERS)

    _add_search(app, viewers, feed, _only(mounted.operator))


def _only(operator: Callable[[str | None], None]) -> Callable[..., None]:
    """A dependency that lets only an operator through."""

    def check(authorization: Annotated[str | None, Header()] = None) -> None:
        try:
            operator(authorization)
        except NotAuthorizedError as error:
            raise HTTPException(401, str(error)) from error

    return check


def _add_search(app: FastAPI, viewers: Viewers, feed: Feed, operator: Callable[..., None]) -> None:
    async def events(
        text: Annotated[str, Query(max_length=100)] = "", side: Annotated[str, Query(max_length=10)] = ""
    ) -> dict[str, Any]:
        if side and side not in list(Side):
            raise HTTPException(422, f"side is {side!r}; use {', '.join(Side)}, or none")
        await viewers.refresh()
        return {"events": await asyncio.to_thread(feed.search, text, Side(side) if side else None)}

    app.add_api_route("/v1/console/events", events, include_in_schema=False, dependencies=[Depends(operator)])


class Viewers:
    """Lets all who look share one look a second; while nobody looks, nothing is gathered."""

    def __init__(self, feed: Feed, *, every_s: float = _EVERY_S) -> None:
        self._feed = feed
        self._every_s = every_s
        self._news = asyncio.Condition()
        self._last = ""
        self._number = 0
        self._task: asyncio.Task[None] | None = None
        self._disk = asyncio.Lock()
        self.count = 0

    async def watch(self) -> AsyncIterator[str]:
        """Server-sent events, the last look at once."""
        self.count += 1
        seen = 0
        if self._task is None or self._task.done():
            self._task, seen = (
                asyncio.create_task(self._gather(), name="console feed"),
                self._number,
            )  # old news is none
        try:
            while True:
                async with self._news:
                    await self._news.wait_for(lambda: self._number != seen)  # noqa: B023 -- asked in this turn
                    seen, last = self._number, self._last
                yield f"data: {last}\n\n"
        finally:
            self.count -= 1

    async def refresh(self) -> None:
        """Read what came to the disk since the last look."""
        async with self._disk:
            await asyncio.to_thread(self._feed.read_disk)

    async def _gather(self) -> None:
        while self.count:
            try:
                await self.refresh()
                body = json.dumps(await self._feed.look(), separators=(",", ":"))
            except OSError as error:  # a disk that is away for a moment; the page shows how old its news is
                _log.warning("the console could not look: %s", error)
            else:
                async with self._news:
                    self._last, self._number = body, self._number + 1
                    self._news.notify_all()
            await asyncio.sleep(self._every_s)


def _asset(name: str) -> Response:
    body = (files("failsoft.console") / "page" / name).read_bytes()
    return Response(body, media_type=_TYPES[name.rsplit(".", 1)[1]], headers=HEADERS)
