"""The short way and the long way answer the same; nobody can tell which one a request took."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict
from starlette.types import Message, Receive, Scope, Send

from failsoft.errors import PlanStoreError
from failsoft.serving import ConstantRung, Instances
from failsoft.serving.intents import INTENTS
from failsoft.serving.task import Task
from failsoft.serving.web import examples
from failsoft.serving.web.messages import PredictAnswer, PredictRequest
from failsoft.serving.web.quick_door import QuickDoor
from failsoft.serving.web.routes import build_routes
from failsoft.serving.web.wire import wire_of
from tests.serving.web.test_routes import FakeFront, guard

LONG_WAY = {"X-Request-Timeout-Ms": "600000"}
JSON = {"Content-Type": "application/json"}
pytestmark = pytest.mark.anyio


def app_of(front: FakeFront) -> httpx.AsyncClient:
    app = build_routes(front, guard, wire=wire_of(INTENTS))
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app=app, raise_app_exceptions=False), base_url="http://gateway"
    )


async def said(body: bytes, headers: dict[str, str]) -> tuple[int, Any, list[dict[str, Any]]]:
    """Status, answer, and what the gateway was asked but for its time, which the long way is told of here."""
    front = FakeFront()
    async with app_of(front) as client:
        response = await client.post("/v1/predict", content=body, headers=JSON | headers)
    assert response.headers["content-type"] in ("application/json", "application/problem+json")
    asked = [request.model_dump(exclude={"timeout_ms"}) for request in front.asked]
    return response.status_code, response.json(), asked


_values = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.lists(st.text()))
_bodies = st.one_of(
    st.dictionaries(st.sampled_from(["text", "texts", "key", "request_id", "timeout_ms", "odd"]), _values).map(
        lambda body: json.dumps(body).encode()
    ),
    st.binary(max_size=40),
    st.text(max_size=20).map(lambda text: json.dumps({"text": text}, ensure_ascii=False).encode("utf-16")),
    st.text(max_size=20).map(lambda text: json.dumps({"text": text}, ensure_ascii=False).encode("utf-8", "replace")),
    st.sampled_from([b'{"text": "\\ud83d half"}', b'{"text": NaN}', b'{"text":"a","text":"b"}', b"[]", b"", b"1e999"]),
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=_bodies)
async def test_any_body_is_read_and_refused_alike_on_both_ways(body: bytes) -> None:
    assert await said(body, {}) == await said(body, LONG_WAY)


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "APPLICATION/JSON", "text/plain", ""])
async def test_any_content_type_is_taken_and_refused_alike(kind: str) -> None:
    body, headers = json.dumps({"text": "play some jazz"}).encode(), {"Content-Type": kind}
    assert (await said(body, headers))[0] == (await said(body, LONG_WAY | headers))[0]


@pytest.mark.parametrize("kinds", [("text/plain", "application/json"), ("application/json", "text/plain")])
async def test_of_several_content_types_the_same_one_counts_on_both_ways(kinds: tuple[str, str]) -> None:
    statuses = []
    for extra in ([], [("X-Request-Timeout-Ms", "600000")]):
        async with app_of(FakeFront()) as client:
            headers = [("Content-Type", kind) for kind in kinds]
            response = await client.post("/v1/predict", content=b'{"text":"play"}', headers=headers + extra)
            statuses.append(response.status_code)
    assert statuses[0] == statuses[1]


class Strict(BaseModel):
    """What is a tuple or a date only as JSON, not as Python's values."""

    model_config = ConfigDict(strict=True)

    when: date
    rooms: tuple[int, int]


STRICT = Task(inputs=Instances(schema=Strict), rungs=lambda _bundle: [ConstantRung("?")])


@pytest.mark.parametrize(
    ("instance", "status"),
    [
        ('{"when": "2026-03-01", "rooms": [1, 2]}', 200),
        ('{"when": "2026-03-01", "rooms": [1, "2"]}', 422),
        ('{"when": "\\ud83d", "rooms": [1, 2]}', 422),
    ],
)
async def test_a_strict_schema_of_instances_is_read_as_json_on_both_ways(instance: str, status: int) -> None:
    answers = []
    for headers in ({}, LONG_WAY):
        app = build_routes(FakeFront(), guard, wire=wire_of(STRICT))
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
            body = f'{{"instance": {instance}}}'.encode()
            response = await client.post("/v1/predict", content=body, headers=JSON | headers)
            answers.append((response.status_code, response.json()))
    assert answers[0] == answers[1]
    assert answers[0][0] == status
    assert status == 200 or "rooms.0" not in answers[0][1]["detail"], "only what is wrong is named"


@pytest.mark.parametrize("headers", [{}, LONG_WAY])
async def test_a_body_of_nothing_but_misfits_is_refused_in_few_words(headers: dict[str, str]) -> None:
    """Each of them was named: 1 MB made 30 MB of words, and no other caller was answered for 4 s."""
    many = json.dumps({"text": "play", **{f"{place:x}": 1 for place in range(5_000)}}).encode()
    status, answer, asked = await said(many, headers)
    assert (status, asked) == (422, [])
    assert answer["detail"].startswith("body: 5000 parts of it do not fit")
    status, answer, _ = await said(b'{"text": "play", "%s": 1, "odd": 2}' % (b"k" * 100_000), headers)
    assert (status, len(answer["detail"]) < 300) == (422, True)
    assert "odd: Extra inputs" in answer["detail"]


async def test_an_error_raised_on_purpose_reads_as_on_the_long_way() -> None:
    front = FakeFront()
    front.fails_with = PlanStoreError("the disk is full")
    async with app_of(front) as client:
        quick = await client.post("/v1/predict", json={"text": "a"})
        slow = await client.post("/v1/predict", json={"text": "a"}, headers=LONG_WAY)
    assert (quick.status_code, quick.json(), quick.headers) == (slow.status_code, slow.json(), slow.headers)


async def test_a_bug_is_answered_with_500_and_says_nothing_of_itself() -> None:
    front = FakeFront()
    front.fails_with = RuntimeError("secret")
    async with app_of(front) as client:
        response = await client.post("/v1/predict", json={"text": "a"})
    assert response.status_code == 500
    assert "secret" not in response.text


class LongWay:
    """What lies behind the door: keeps what it can read."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        self.bodies.append(body)


async def answered(_: PredictRequest) -> PredictAnswer:
    return PredictAnswer.model_validate(examples.PREDICT_ANSWERS["model"]["value"])


async def refused(*_: object) -> Any:
    raise AssertionError("nothing was to be refused")


@pytest.mark.parametrize(
    ("scope", "pieces"),
    [
        pytest.param({"method": "GET"}, [b'{"text": "a"}'], id="another method"),
        pytest.param({"path": "/v1/status"}, [b'{"text": "a"}'], id="another path"),
        pytest.param({"headers": []}, [b'{"text": "a"}'], id="no content type"),
        pytest.param({"headers": [(b"content-type", b"application/json"), (b"x-slow", b"1")]}, [b"{}"], id="a header"),
        pytest.param({}, [b'{"te', b'xt": "a"}'], id="in pieces"),
        pytest.param({}, [b'{"text": 1}'], id="of another form"),
    ],
)
async def test_what_is_not_plain_goes_the_long_way_whole(scope: dict[str, Any], pieces: list[bytes]) -> None:
    behind = LongWay()
    door = QuickDoor(
        behind,
        path="/v1/predict",
        form=PredictRequest,
        answer=answered,
        refuse=refused,
        long_way=frozenset({b"x-slow"}),
    )
    messages = [
        {"type": "http.request", "body": piece, "more_body": number < len(pieces) - 1}
        for number, piece in enumerate(pieces)
    ]
    plain = {
        "type": "http",
        "method": "POST",
        "path": "/v1/predict",
        "headers": [(b"content-type", b"application/json")],
    }

    async def receive() -> Message:
        return messages.pop(0)

    async def send(_: Message) -> None:
        raise AssertionError("the door has answered by itself")

    await door(plain | scope, receive, send)
    assert behind.bodies == [b"".join(pieces)]


@pytest.mark.parametrize("way", [{}, LONG_WAY], ids=["short", "long"])
@pytest.mark.parametrize(
    ("body", "header", "asked"),
    [
        ({"text": "a"}, "proxy-1", "proxy-1"),
        ({"text": "a", "request_id": "own"}, "proxy-1", "own"),
        ({"text": "a"}, "x" * 201, None),
        ({"text": "a"}, "", None),
        ({"text": "a"}, "caf\u00e9", None),
    ],
)
async def test_an_id_of_a_proxy_is_taken_where_the_caller_named_none_and_never_refused(
    way: dict[str, str], body: dict[str, str], header: str, asked: str | None
) -> None:
    front = FakeFront()
    async with app_of(front) as client:
        sent = [(k.encode(), v.encode("latin-1")) for k, v in (JSON | way | {"X-Request-Id": header}).items()]
        response = await client.post("/v1/predict", content=json.dumps(body).encode(), headers=sent)
    assert response.status_code == 200
    assert [request.request_id for request in front.asked] == [asked]
