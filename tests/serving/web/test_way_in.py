"""Layers stand around the whole of FastAPI, and what they raise is answered like any other bug."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from fastapi import FastAPI, Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from failsoft.serving.web.bodies import BodyLimit
from failsoft.serving.web.way_in import NettedApp

pytestmark = pytest.mark.anyio


class Layer:
    """Notes that a request came by; answers or breaks at paths of its own."""

    def __init__(self, name: str, seen: list[str], app: ASGIApp) -> None:
        self._name, self._seen, self._app = name, seen, app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._seen.append(self._name)
        if scope["path"] == f"/{self._name}":
            await PlainTextResponse(self._name)(scope, receive, send)
        elif scope["path"] == f"/{self._name}/bug":
            raise OSError("a bug in a layer")
        else:
            await self._app(scope, receive, send)


async def our_fault(_request: Request, _error: Exception) -> PlainTextResponse:
    return PlainTextResponse("our own fault", 500)


def netted(seen: list[str]) -> NettedApp:
    def inside(app: ASGIApp) -> ASGIApp:
        return Layer("inside", seen, app)

    def outside(app: ASGIApp) -> ASGIApp:
        return Layer("outside", seen, app)

    async def here() -> str:
        seen.append("route")
        return "here"

    app = NettedApp(layers=[inside, outside])
    app.add_api_route("/here", here, methods=["GET"])
    app.add_exception_handler(Exception, our_fault)
    return app


@pytest.mark.parametrize(
    ("path", "status", "came_by"),
    [
        ("/here", 200, ["outside", "inside", "route"]),
        ("/inside", 200, ["outside", "inside"]),
        ("/outside", 200, ["outside"]),
        ("/inside/bug", 500, ["outside", "inside"]),
        ("/outside/bug", 500, ["outside"]),
        ("/nowhere", 404, ["outside", "inside"]),
    ],
)
async def test_layers_are_passed_from_the_outside_and_a_bug_in_one_is_answered_in_the_apps_words(
    path: str, status: int, came_by: list[str]
) -> None:
    seen: list[str] = []
    transport = httpx.ASGITransport(app=netted(seen), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as http:
        answer = await http.get(path)
    assert (answer.status_code, seen) == (status, came_by)
    assert answer.text == "our own fault" or status != 500


def test_serve_still_finds_a_fastapi_app_and_its_routes() -> None:
    app = netted([])
    assert isinstance(app, FastAPI)
    assert "/here" in {getattr(route, "path", "") for route in app.routes}
    assert app.openapi()["paths"].keys() == {"/here"}


async def test_nobody_listens_whether_a_caller_leaves_while_its_answer_comes_at_once() -> None:
    received, sent = list[str](), list[Message]()

    async def receive() -> Message:
        received.append("asked")
        return {"type": "http.request", "body": b"{}"}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "path": "/", "headers": []}
    await BodyLimit(PlainTextResponse("at once"), 100, listen_after_s=60.0)(scope, receive, send)
    assert (received, sent[-1]["body"]) == (["asked"], b"at once")


async def test_a_body_that_trickles_in_is_408_and_is_not_waited_for_for_ever() -> None:
    async def receive() -> Message:
        await asyncio.sleep(0)
        return {"type": "http.request", "body": b"", "more_body": True}

    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    scope: Scope = {"type": "http", "method": "POST", "path": "/v1/predict", "headers": []}
    await BodyLimit(PlainTextResponse("never"), 100, whole_within_s=0.05)(scope, receive, send)
    assert (sent[0]["status"], dict(sent[0]["headers"])[b"connection"]) == (408, b"close")
