"""The console's page and its routes, mounted into a gateway's app.

The page itself holds no secret and needs no token. Nor does its feed, so that one sees in the night what happens: like
the status route it shows stages, incidents with their reasons, and training runs to whoever reaches the gateway, unless
the app's setting ``console_token`` asks readers of both for a token. To search the ledger, and for every order, one
needs the operator's.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from importlib.resources import files
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, HTTPException, Query, Response
from fastapi.responses import StreamingResponse

from failsoft.console.feed import Feed
from failsoft.console.runbook import runbook_page
from failsoft.errors import NotAuthorizedError
from failsoft.health.clock import SystemClock
from failsoft.health.ledger import Side
from failsoft.serving.web.auth import Guard
from failsoft.serving.web.mounting import Mounted

_log = logging.getLogger(__name__)
_EVERY_S = 1.0
MAX_VIEWERS = 32
"""Whoever comes beyond it takes the place of the one who came first: strangers can't keep an operator out."""
_MOST_LOOKS = 900
"""Of one stream, then the page asks for the next one: what somebody does not read can't pile up for ever."""
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
    """Add the page, its live feed and the search of the ledger.

    Where reading needs a token the page itself and the runbook stay open: they hold nothing that is not in every copy
    of this package. Wrong tokens are counted where all of the gateway's are: :mod:`failsoft.serving.web.guess_limit`.
    """
    feed = Feed(mounted.home, status=mounted.status, rollout=mounted.rollout, clock=SystemClock())
    viewers, reader = Viewers(feed), mounted.guards.reader
    readers = [] if reader is None else [Depends(_only(reader))]

    async def live() -> Response:
        return StreamingResponse(viewers.watch(), media_type="text/event-stream", headers=HEADERS)

    async def may_read() -> dict[str, bool]:
        return {"may_read": True}

    _add_page(app, needs_token=reader is not None)
    app.add_api_route("/v1/console/live", live, include_in_schema=False, dependencies=readers)
    app.add_api_route("/v1/console/reader", may_read, include_in_schema=False, dependencies=readers)
    _add_search(app, viewers, feed, _only(mounted.guards.operator))


def _add_page(app: FastAPI, *, needs_token: bool) -> None:
    @app.get("/console", include_in_schema=False)
    async def page() -> Response:
        return _asset("index.html", {b"<body>": b'<body data-token="needed">'} if needs_token else {})

    @app.get("/console/runbook", include_in_schema=False)
    async def runbook() -> Response:
        return Response(await asyncio.to_thread(runbook_page), media_type="text/html", headers=HEADERS)

    @app.get("/console/{name}", include_in_schema=False)
    async def part(name: str) -> Response:
        if name not in {"console.css", "console.js"}:
            raise HTTPException(404, f"the console has no {name[:50]!r}")
        return _asset(name)


def _only(guard: Guard) -> Callable[..., None]:
    """A dependency that lets only those through whom the guard does."""

    def check(authorization: Annotated[str | None, Header()] = None) -> None:
        try:
            guard(authorization)
        except NotAuthorizedError as error:
            raise HTTPException(401, str(error), headers={"WWW-Authenticate": "Bearer"}) from error

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

    def __init__(self, feed: Feed, *, every_s: float = _EVERY_S, most_looks: int = _MOST_LOOKS) -> None:
        self._feed = feed
        self._every_s = every_s
        self._most_looks = most_looks
        self._news = asyncio.Condition()
        self._last = ""
        self._number = 0
        self._task: asyncio.Task[None] | None = None
        self._disk = asyncio.Lock()
        self._seats: list[object] = []

    @property
    def count(self) -> int:
        """How many look."""
        return len(self._seats)

    async def watch(self) -> AsyncIterator[str]:
        """Server-sent events, the last look at once. They end when somebody else needs the place, or looking failed."""
        seat, seen = object(), 0
        self._seats = [*self._seats[1 - MAX_VIEWERS :], seat]
        if self._task is None:
            seen = self._number  # old news is none
            self._task = asyncio.create_task(self._gather(), name="console feed")
            self._task.add_done_callback(_say_if_failed)
        try:
            for _ in range(self._most_looks):
                await self._wait(seat, seen)
                if self._number == seen or seat not in self._seats:
                    return
                seen = self._number
                yield f"data: {self._last}\n\n"
        finally:
            self._seats = [one for one in self._seats if one is not seat]

    async def _wait(self, seat: object, seen: int) -> None:
        async with self._news:
            await self._news.wait_for(
                lambda: self._number != seen or seat not in self._seats or self._task is None,
            )

    async def refresh(self) -> None:
        """Read what came to the disk since the last look."""
        async with self._disk:
            await asyncio.to_thread(self._feed.read_disk)

    async def _gather(self) -> None:
        try:
            while self._seats:
                await self._look()
                await asyncio.sleep(self._every_s)
        finally:  # also after an error: whoever waits leaves, comes again, and all is begun anew
            self._task = None
            async with self._news:
                self._news.notify_all()

    async def _look(self) -> None:
        try:
            await self.refresh()
            body = json.dumps(await self._feed.look(), separators=(",", ":"), allow_nan=False)
        except OSError as error:  # a disk that is away for a moment; the page shows how old its news is
            _log.warning("the console could not look: %s", error)
            return
        async with self._news:
            self._last, self._number = body, self._number + 1
            self._news.notify_all()


def _say_if_failed(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        _log.error("the console stumbled: %r", task.exception())


def _asset(name: str, instead: Mapping[bytes, bytes] | None = None) -> Response:
    body = (files("failsoft.console") / "page" / name).read_bytes()
    for old, new in (instead or {}).items():
        body = body.replace(old, new)
    return Response(body, media_type=_TYPES[name.rsplit(".", 1)[1]], headers=HEADERS)
