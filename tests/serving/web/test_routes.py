"""The HTTP surface: who may do what, and how refusals read. No Ray."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
from starlette.types import Message

from failsoft.errors import (
    BadRequestError,
    NotAuthorizedError,
)
from failsoft.health.callers import caller_of
from failsoft.serving.intents import INTENTS
from failsoft.serving.web import examples
from failsoft.serving.web.messages import PredictAnswer, PredictRequest
from failsoft.serving.web.problems import Problem
from failsoft.serving.web.routes import build_routes
from failsoft.serving.web.wire import wire_of

pytestmark = pytest.mark.anyio
TOKEN = "t" * 20
OPERATOR = {"Authorization": f"Bearer {TOKEN}"}


class FakeFront:
    def __init__(self) -> None:
        self.orders: list[tuple[Any, ...]] = []
        self.fails_with: Exception | None = None
        self.asked: list[PredictRequest] = []
        self.left: list[PredictRequest] = []
        self.holds = asyncio.Event()
        self.holds.set()

    async def predict(self, request: PredictRequest) -> PredictAnswer:
        if self.fails_with:
            raise self.fails_with
        self.asked.append(request)
        try:
            await self.holds.wait()
        except asyncio.CancelledError:
            self.left.append(request)
            raise
        return PredictAnswer.model_validate(examples.PREDICT_ANSWERS["model"]["value"])

    def status(self) -> dict[str, Any]:
        return {"epoch": 7}

    async def degrade(self, *, for_s: float | None, why: str, by: str) -> dict[str, Any]:
        return self._order("degrade", for_s, why, by)

    async def restore(self, *, why: str, by: str) -> dict[str, Any]:
        return self._order("restore", why, by)

    async def propose(self, release: str, *, again: bool = False) -> dict[str, Any]:
        return self._order("propose", release, again)

    def _order(self, *order: object) -> dict[str, Any]:
        if self.fails_with:
            raise self.fails_with
        self.orders.append(order)
        return {"epoch": 8}


def guard(authorization: str | None) -> None:
    if authorization != OPERATOR["Authorization"]:
        raise NotAuthorizedError("give the operator token")


def client(front: FakeFront, *, max_requests: int = 256) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(
        app=build_routes(front, guard, wire=wire_of(INTENTS), max_requests=max_requests), raise_app_exceptions=False
    )
    return httpx.AsyncClient(transport=transport, base_url="http://gateway")


async def test_status_and_health_need_no_token() -> None:
    async with client(FakeFront()) as http:
        assert (await http.get("/v1/status")).json() == {"epoch": 7}
        assert (await http.get("/healthz")).status_code == 200


async def test_a_request_that_nobody_can_answer_is_400_in_words() -> None:
    front = FakeFront()
    front.fails_with = BadRequestError("give text or texts")
    async with client(front) as http:
        response = await http.post("/v1/predict", json={"text": "play jazz"})
    assert (response.status_code, response.json()["detail"]) == (400, "give text or texts")


@pytest.mark.parametrize(
    "body",
    [
        b"not json",
        b"{}",
        b'{"text": "\\ud83d", "nonsense": "\\ud83d"}',
        b'{"text": 7}',
        b'{"text": "a", "texts": ["b"]}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
async def test_a_body_that_does_not_fit_is_a_problem_in_words_and_never_a_500(body: bytes) -> None:
    async with client(FakeFront()) as http:
        response = await http.post("/v1/predict", content=body, headers={"Content-Type": "application/json"})
    assert response.status_code in (400, 422)
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["detail"]


async def test_a_path_that_is_none_is_a_problem_too() -> None:
    async with client(FakeFront()) as http:
        response = await http.get("/v3/predict")
    assert (response.status_code, response.json()["title"]) == (404, "Not Found")
    assert response.json()["instance"] == "/v3/predict"


@pytest.mark.parametrize(
    ("path", "sent", "status"),
    [
        ("/nowhere", {}, 404),
        ("/v1/status", {"content": b"{}"}, 405),
        ("/v1/predict", {"json": {}}, 422),
        ("/v1/predict", {"json": {"text": "a"}, "headers": {"X-Request-Timeout-Ms": "soon"}}, 422),
        ("/v1/predict", {"content": b"x" * 1_100_000}, 413),
        ("/v1/predict", {"json": {"text": "a"}}, 500),
        ("/v1/degrade", {"json": {"why": "02:15"}}, 401),
        ("/v1/degrade", {"json": {"why": "02:15"}, "headers": {"Authorization": "Basic dXNlcg=="}}, 401),
    ],
)
async def test_whatever_goes_wrong_reads_as_rfc_9457_says(path: str, sent: dict[str, Any], status: int) -> None:
    front = FakeFront()
    front.fails_with = ZeroDivisionError("a bug, and secret") if status == 500 else None
    async with client(front) as http:
        response = await http.post(path, **sent)
    assert (response.status_code, response.headers["content-type"]) == (status, "application/problem+json")
    found = Problem.model_validate(response.json())
    assert (found.status, found.instance) == (status, path)
    assert "secret" not in found.detail


async def test_a_caller_may_say_how_long_it_waits_in_a_header_or_in_the_body() -> None:
    front = FakeFront()
    async with client(front) as http:
        await http.post("/v1/predict", json={"text": "a"}, headers={"X-Request-Timeout-Ms": "80"})
        await http.post("/v1/predict", json={"text": "a", "timeout_ms": 70}, headers={"x-request-timeout-ms": "80.5"})
        await http.post("/v1/predict", json={"text": "a"})
    assert [request.timeout_ms for request in front.asked] == [80.0, 70.0, None]


async def test_whose_a_request_is_a_proxys_header_says_before_the_body_and_the_body_before_its_key() -> None:
    front = FakeFront()
    async with client(front) as http:
        await http.post("/v1/predict", json={"text": "a", "caller": "me"}, headers={"X-Caller-Id": "tenant-4"})
        await http.post("/v1/predict", json={"text": "a", "caller": "tenant-4", "key": "user-17"})
        await http.post("/v1/predict", json={"text": "a", "key": "tenant-4"})
        await http.post("/v1/predict", json={"text": "a"})
        refused = await http.post("/v1/predict", json={"text": "a"}, headers={"X-Caller-Id": "x" * 300})
        twice = [("X-Caller-Id", "tenant-4"), ("X-Caller-Id", "tenant-5")]
        unclear = await http.post("/v1/predict", json={"text": "a"}, headers=twice)
    whose = [request.whose for request in front.asked]
    assert whose == [caller_of("tenant-4")] * 3 + [None]
    assert refused.status_code == 422
    assert (unclear.status_code, "is there twice" in unclear.json()["detail"]) == (400, True)


async def until(condition: Callable[[], bool]) -> None:
    """Let the app run on until this holds."""
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came to hold")


async def test_a_session_named_in_a_header_is_the_key_and_a_header_that_is_no_name_is_refused() -> None:
    front, ask = FakeFront(), {"text": "a", "key": "mine"}
    async with client(front) as http:
        await http.post("/v1/predict", json=ask, headers={"X-Session-Id": "session-4"})
        await http.post("/v1/predict", json=ask)
        refused = await http.post("/v1/predict", json=ask, headers={"X-Session-Id": "x" * 300})
    assert [request.key for request in front.asked] == ["session-4", "mine"]
    assert refused.status_code == 422


async def test_only_when_the_gateway_itself_is_full_a_caller_is_sent_away_and_told_when_to_come_back() -> None:
    front = FakeFront()
    front.holds.clear()
    async with client(front, max_requests=2) as http:
        inside = [asyncio.create_task(http.post("/v1/predict", json={"text": "a"})) for _ in range(2)]
        await until(lambda: len(front.asked) == 2)
        refused = await http.post("/v1/predict", json={"text": "a"})
        order = await http.post("/v1/degrade", json={"why": "02:15"}, headers=OPERATOR)
        front.holds.set()
        answers = await asyncio.gather(*inside, http.post("/v1/predict", json={"text": "a"}))
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    assert refused.headers["content-type"] == "application/problem+json"
    assert order.status_code == 200
    assert [answer.status_code for answer in answers] == [200, 200, 200]


@pytest.mark.parametrize("headers", [{}, {"X-Session-Id": "s-1"}], ids=["the short way", "the long way"])
async def test_what_is_full_counts_what_requests_ask_for_and_not_only_how_many_they_are(
    headers: dict[str, str],
) -> None:
    front = FakeFront()
    front.holds.clear()
    several = {"texts": ["a"] * 5}
    async with client(front, max_requests=2) as http:
        inside = asyncio.create_task(http.post("/v1/predict", json={"texts": ["a"] * 60}))
        await until(lambda: len(front.asked) == 1)
        refused = await http.post("/v1/predict", json={"text": "a"}, headers=headers)
        front.holds.set()
        assert (await inside).status_code == 200, "whoever finds it empty is let in with any number"
        front.holds.clear()
        five = asyncio.create_task(http.post("/v1/predict", json=several, headers=headers))
        await until(lambda: len(front.asked) == 2)
        ten = await http.post("/v1/predict", json=several)
        front.holds.set()
        assert (await five).status_code == 200
        assert (await http.post("/v1/predict", json=several)).status_code == 200
    for answer in (refused, ten):
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
        assert answer.headers["content-type"] == "application/problem+json"
    assert "5 items are being answered here, 5 more are not taken" in ten.json()["detail"]


async def test_a_caller_that_leaves_stops_the_work_and_frees_its_place() -> None:
    front = FakeFront()
    front.holds.clear()
    app, left, sent = (
        build_routes(front, guard, wire=wire_of(INTENTS), max_requests=1),
        asyncio.Event(),
        list[Message](),
    )
    body = iter([{"type": "http.request", "body": b'{"text": "a"}'}])

    async def receive() -> Message:
        for message in body:
            return message
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/v1/predict", "headers": headers, "query_string": b""}
    call = asyncio.create_task(app(scope, receive, send))
    await until(lambda: len(front.asked) == 1)
    left.set()
    await call
    assert (front.left, sent) == (front.asked, [])
    front.holds.set()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://gateway") as http:
        assert (await http.post("/v1/predict", json={"text": "b"})).status_code == 200


async def chunks(count: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield b"x" * 1024


@pytest.mark.parametrize("announced", [True, False])
async def test_a_body_above_the_limit_is_refused_before_it_is_read_whole(announced: bool) -> None:
    content = b"x" * 1_100_000 if announced else chunks(1_100)
    async with client(FakeFront()) as http:
        response = await http.post("/v1/predict", content=content)
    assert response.status_code == 413
    assert "send fewer or shorter texts" in response.json()["detail"]
