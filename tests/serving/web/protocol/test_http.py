"""The protocol over HTTP: the same answers, the same nets, errors in its own form."""

from __future__ import annotations

import json
import math
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from failsoft.health.callers import caller_of
from failsoft.serving.config import GatewayConfig
from failsoft.serving.plan.plan import Colour, Stage
from failsoft.serving.request import NoReading, Reading
from failsoft.serving.web.protocol.inference import Standing
from failsoft.serving.web.protocol.opening import open_protocol
from tests.serving.fakes import good, plan, weak
from tests.serving.own_world import OwnWorld, example
from tests.serving.web.protocol.served import MODEL, Served, by_name, infer_path, texts
from tests.serving.web.test_routes import FakeFront

pytestmark = pytest.mark.anyio
TEXT = "play some jazz"


def as_bytes(*said: bytes) -> bytes:
    return b"".join(struct.pack("<I", len(one)) + one for one in said)


def binary_body(raw: bytes, shape: list[int], **more: Any) -> tuple[bytes, dict[str, str]]:
    tensor = {"name": "text", "datatype": "BYTES", "shape": shape, "parameters": {"binary_data_size": len(raw)}}
    head = json.dumps({"inputs": [tensor]} | more).encode()
    return head + raw, {"Inference-Header-Content-Length": str(len(head))}


async def test_a_text_is_answered_as_at_v1_predict_and_says_who_answered() -> None:
    served = Served()
    async with served.client() as http:
        theirs = await http.post(infer_path(), json=texts(TEXT, id="q-1"))
        ours = (await http.post("/v1/predict", json={"text": TEXT, "request_id": "q-1"})).json()
    assert theirs.status_code == 200
    said = theirs.json()
    values = by_name(said)
    assert (said["model_name"], said["model_version"], said["id"]) == (MODEL, "r1", "q-1")
    assert (values["intent"], values["source"], values["release"]) == (["play_music"], ["primary"], ["r1"])
    assert values["confidence"] == [pytest.approx(0.97)]
    assert {"intent": ours["intent"], "source": ours["source"]} == {"intent": "play_music", "source": "primary"}
    assert (theirs.headers["x-answer-source"], "x-degrade-reason" in theirs.headers) == ("primary", False)
    assert (said["parameters"]["source"], said["parameters"]["stage"]) == ("primary", "serving")


async def test_a_weak_answer_is_replaced_and_the_reason_stands_in_outputs_and_headers_of_both_routes() -> None:
    served = Served()
    served.counter.blue.answer = weak()
    async with served.client() as http:
        theirs = await http.post(infer_path(), json=texts(TEXT))
        ours = await http.post("/v1/predict", json={"text": TEXT})
    values = by_name(theirs.json())
    assert values["degrade_reason"] == ["confidence 0.30 is below 0.50"]
    assert values["confidence"] == [None], "rules have no honest one, and JSON no NaN"
    assert values["release"] == [""]
    assert "model_version" not in theirs.json()
    for response in (theirs, ours):
        assert response.headers["x-degrade-reason"] == "confidence 0.30 is below 0.50"
        assert response.headers["x-answer-source"] == values["source"][0]


async def weak_where_odd(text: str, *, within_s: float = math.inf) -> Reading | NoReading:
    return weak() if "odd" in text else good()


async def test_tensors_may_come_and_go_as_bytes() -> None:
    served = Served()
    served.counter.blue.ask = weak_where_odd  # type: ignore[method-assign]
    body, headers = binary_body(as_bytes(b"play some jazz", b"odd \xff bytes"), [2, 1])
    asked = json.loads(body[: int(headers["Inference-Header-Content-Length"])])
    asked["outputs"] = [
        {"name": "confidence", "parameters": {"binary_data": True}},
        {"name": "intent"},
        {"name": "source", "parameters": {"binary_data": True}},
    ]
    head = json.dumps(asked).encode()
    tail = body[int(headers["Inference-Header-Content-Length"]) :]
    async with served.client() as http:
        response = await http.post(
            infer_path(), content=head + tail, headers={"inference-header-content-length": str(len(head))}
        )
    assert response.status_code == 200, response.text
    size = int(response.headers["inference-header-content-length"])
    said, raw = json.loads(response.content[:size]), response.content[size:]
    assert response.headers["content-type"] == "application/octet-stream"
    assert [output["name"] for output in said["outputs"]] == ["confidence", "intent", "source"]
    first, second = struct.unpack_from("<ff", raw)
    assert (first, math.isnan(second)) == (pytest.approx(0.97), True)
    source = served_sources(raw[8:])
    assert source[0] == b"primary"
    assert said["outputs"][2]["parameters"] == {"binary_data_size": len(raw) - 8}


def served_sources(raw: bytes) -> list[bytes]:
    found, place = [], 0
    while place < len(raw):
        (size,) = struct.unpack_from("<I", raw, place)
        found.append(raw[place + 4 : place + 4 + size])
        place += 4 + size
    return found


async def test_parameters_and_headers_say_who_asks_and_how_long_it_waits_as_at_v1_predict() -> None:
    served = Served()
    named = {"timeout": 80_000, "timeout_ms": 90.5, "caller": "me", "sequence_id": 17, "priority": 3}
    async with served.client() as http:
        await http.post(infer_path(), json=texts(TEXT, parameters=named))
        headers = {"X-Request-Timeout-Ms": "70", "X-Caller-Id": "tenant-4", "X-Session-Id": "s-1"}
        await http.post(infer_path(), json=texts(TEXT, parameters=named), headers=headers)
        await http.post(infer_path(), json=texts(TEXT, parameters={"sequence_id": 0}))
    assert [(ask.timeout_ms, ask.key) for ask in served.asked] == [(80.0, "17"), (70.0, "s-1"), (None, None)]
    assert [ask.whose for ask in served.asked] == [caller_of("me"), caller_of("tenant-4"), None]


async def test_an_id_in_a_header_is_the_requests_where_it_has_none_itself() -> None:
    served, headers = Served(), {"X-Request-Id": "from-a-proxy"}
    async with served.client() as http:
        ids = [
            (await http.post(infer_path(), json=texts(TEXT, **more), headers=headers)).json()["id"]
            for more in ({}, {"id": "own"})
        ]
    assert ids == ["from-a-proxy", "own"]


@pytest.mark.parametrize(
    ("sent", "status", "words"),
    [
        ({"content": b"not json"}, 400, "no JSON"),
        ({"content": b"[" * 100_000}, 400, "no JSON"),
        ({"json": {}}, 400, "inputs"),
        (
            {"json": texts(TEXT) | {"outputs": [{"name": "labels"}]}},
            400,
            "'labels' is no output; this model's are intent",
        ),
        (
            {"json": {"inputs": [{"name": "x", "datatype": "BYTES", "shape": [1], "data": ["a"]}]}},
            400,
            "inputs are text",
        ),
        ({"json": {"inputs": texts(TEXT)["inputs"] * 2}}, 400, "came twice"),
        (
            {"json": {"inputs": [{"name": "text", "datatype": "FP32", "shape": [1], "data": [1]}]}},
            400,
            "send it as BYTES",
        ),
        ({"json": {"inputs": [{"name": "text", "datatype": "BYTES", "shape": [2], "data": ["a"]}]}}, 400, "2 elements"),
        ({"json": {"inputs": [{"name": "text", "datatype": "BYTES", "shape": [1], "data": [7]}]}}, 400, "int is given"),
        ({"json": {"inputs": [{"name": "text", "datatype": "BYTES", "shape": [-1], "data": []}]}}, 400, "a shape is"),
        ({"json": texts(*["a"] * 65)}, 400, "65 items"),
        ({"json": texts()}, 400, "0 items"),
        ({"json": texts("a" * 8_001)}, 400, "at most 8000"),
        ({"json": texts(TEXT, parameters={"timeout": "soon"})}, 400, "parameter timeout"),
        ({"json": texts(TEXT), "headers": {"X-Request-Timeout-Ms": "soon"}}, 422, "X-Request-Timeout-Ms"),
        ({"json": texts(TEXT), "headers": {"Content-Encoding": "gzip"}}, 400, "compressed"),
        ({"json": texts(TEXT), "headers": {"Inference-Header-Content-Length": "9999"}}, 400, "how many are JSON"),
        ({"content": b"x" * 1_100_000}, 413, "larger than"),
    ],
)
async def test_what_can_not_be_answered_is_an_error_in_the_protocols_form(
    sent: dict[str, Any], status: int, words: str
) -> None:
    served = Served()
    async with served.client(raises=True) as http:
        response = await http.post(infer_path(), **sent)
    assert (response.status_code, list(response.json())) == (status, ["error"]), response.text
    assert words in response.json()["error"]
    assert response.headers["content-type"] == "application/json"
    assert served.asked == []


@pytest.mark.parametrize("path", ["/v2/models/other/infer", "/v2/models/failsoft/versions/r9/infer", "/v2/nowhere"])
async def test_what_is_not_there_is_404_in_the_same_form(path: str) -> None:
    async with Served().client() as http:
        response = await http.post(path, json=texts(TEXT))
    assert (response.status_code, list(response.json())) == (404, ["error"])


async def test_a_bug_and_a_full_gateway_read_so_too() -> None:
    front, config = FakeFront(), GatewayConfig(max_requests=1)
    served = Served(config)
    served.predict = front.predict  # type: ignore[assignment, method-assign]
    served.app.state.room._answer = front.predict
    front.fails_with = ZeroDivisionError("a bug, and secret")
    async with served.client() as http:
        bug = await http.post(infer_path(), json=texts(TEXT))
        full = await http.post(infer_path(), json=texts(*["a"] * 3))
    assert (bug.status_code, "secret" in bug.text, list(bug.json())) == (500, False, ["error"])
    assert full.status_code == 500


async def test_the_turnstile_counts_inferences_with_all_other_requests() -> None:
    served = Served(GatewayConfig(max_requests=1))

    async def meanwhile(_: Any) -> Any:
        async with served.client() as http:
            refused.append(await http.post(infer_path("r1"), json=texts(TEXT)))
        return await served.predict(_)

    refused: list[httpx.Response] = []
    served.app.state.room._answer = meanwhile
    async with served.client() as http:
        answered = await http.post(infer_path(), json=texts(TEXT))
    assert (answered.status_code, refused[0].status_code) == (200, 429)
    assert (list(refused[0].json()), refused[0].headers["retry-after"]) == (["error"], "1")


async def test_a_degraded_gateway_is_live_and_ready_and_answers_while_its_model_is_not_ready() -> None:
    served = Served()
    async with served.client() as http:
        well = [(await http.get(path)).status_code for path in HEALTH]
        served.follow(plan(Stage.DEGRADED, share=0.0))
        ill = [await http.get(path) for path in HEALTH]
        answer = await http.post(infer_path(), json=texts(TEXT))
    assert well == [200, 200, 200, 200]
    assert [response.status_code for response in ill] == [200, 200, 503, 503]
    assert ill[2].json() == {"name": MODEL, "ready": False, "error": "degraded: as planned"}
    assert answer.status_code == 200
    assert by_name(answer.json())["source"] != ["primary"]


HEALTH = ("/v2/health/live", "/v2/health/ready", f"/v2/models/{MODEL}/ready", f"/v2/models/{MODEL}/versions/r1/ready")


async def test_model_ready_means_a_model_that_answers_here_and_a_version_that_releases_own() -> None:
    served = Served()
    canary = replace(plan(Stage.CANARY, share=0.05, stand_in=Colour.GREEN), why="on trial")
    degraded = plan(Stage.DEGRADED, share=0.0, stand_in=Colour.GREEN)
    found: list[list[int]] = []
    async with served.client() as http:
        for now, starting in (
            (canary, frozenset[Colour]()),
            (canary, frozenset({Colour.BLUE})),
            (canary, frozenset(Colour)),
            (degraded, frozenset[Colour]()),
        ):
            served.follow(now)
            served.starting = starting
            paths = [f"/v2/models/{MODEL}{version}/ready" for version in ("", "/versions/r1", "/versions/r0")]
            found.append([(await http.get(path)).status_code for path in paths])
    assert found == [[200, 200, 200], [200, 503, 200], [503, 503, 503], [200, 503, 200]]


async def test_a_gateway_whose_duties_have_ended_is_not_ready() -> None:
    served = Served()
    served.is_whole = False
    async with served.client() as http:
        assert [(await http.get(path)).status_code for path in HEALTH[:2]] == [200, 503]


async def test_metadata_name_the_tensors_that_are_taken_and_given() -> None:
    async with Served().client() as http:
        server = (await http.get("/v2")).json()
        model = (await http.get(f"/v2/models/{MODEL}")).json()
        unknown = await http.get("/v2/models/other")
        answer = (await http.post(infer_path(), json=texts(TEXT))).json()
    assert (server["name"], server["extensions"]) == ("failsoft", ["binary_tensor_data"])
    assert (model["versions"], model["platform"]) == (["r1"], "failsoft")
    assert model["inputs"] == [{"name": "text", "datatype": "BYTES", "shape": [-1]}]
    described = {output["name"]: output["datatype"] for output in model["outputs"]}
    assert described == {output["name"]: output["datatype"] for output in answer["outputs"]}
    assert (unknown.status_code, list(unknown.json())) == (404, ["error"])


async def test_an_own_models_rows_are_numbers_and_so_are_its_answers(tmp_path: Path) -> None:
    there = example()
    there["publish"](tmp_path)
    world = OwnWorld(there["config"], tmp_path)
    standing = Standing(plan=world.plan, starting=frozenset(), is_whole=True)
    open_protocol(world.app, GatewayConfig(model_name="flats"), there["config"].task(), lambda: standing)
    rows = {"name": "instance", "datatype": "FP32", "shape": [2, 2], "data": [[70.0, 3.0], [1e9, 1.0]]}
    transport = httpx.ASGITransport(app=world.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://own") as http:
        model = (await http.get("/v2/models/flats")).json()
        answer = await http.post("/v2/models/flats/infer", json={"inputs": [rows]})
        wrong = await http.post("/v2/models/flats/infer", json={"inputs": [rows | {"shape": [1, 4]}]})
    assert model["inputs"] == [{"name": "instance", "datatype": "FP64", "shape": [-1, 2]}]
    assert model["outputs"][0] == {"name": "output", "datatype": "FP64", "shape": [-1]}
    values = by_name(answer.json())
    assert (values["output"], values["source"]) == ([305.0, 4e9], ["primary", "by_size"])
    assert (wrong.status_code, "instance" in wrong.json()["error"]) == (400, True)
