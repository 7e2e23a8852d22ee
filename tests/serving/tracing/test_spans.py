"""A request's spans as a collector gets them, over HTTP, in OTLP. No Ray cluster."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from failsoft.serving.plan.plan import Stage
from failsoft.serving.tracing.spans import kept_trace_id
from tests.serving.fakes import plan
from tests.serving.tracing.receiver import Receiver, attributes, receiving
from tests.serving.tracing.traced_gateway import UNSURE, config, gateway

pytestmark = pytest.mark.anyio
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SERVER, CLIENT, ERROR = 2, 3, 2
ALL = {
    "POST /v1/predict", "failsoft.answer", "failsoft.choose_arm", "failsoft.clean", "failsoft.ask", "failsoft.call",
    "failsoft.judge",
}  # fmt: skip


async def until(receiver: Receiver, *names: str) -> None:
    """All of these have come."""
    await asyncio.to_thread(receiver.wait, lambda it: all(it.named(name) for name in names))


def parents(receiver: Receiver) -> dict[str, str]:
    """Each span's name, and that of its parent."""
    names = {span.span_id: span.name for span in receiver.spans}
    return {span.name: names.get(span.parent_span_id, span.parent_span_id.hex()) for span in receiver.spans}


async def test_each_step_of_a_request_is_a_span_below_the_one_that_it_is_part_of() -> None:
    with receiving() as receiver:
        async with gateway(config(receiver.url)) as (_, http, _):
            await http.post("/v1/predict", json={"text": "play some jazz", "request_id": "q1"})
            await until(receiver, *ALL)
    assert parents(receiver) == {
        "POST /v1/predict": "",
        "failsoft.answer": "POST /v1/predict",
        "failsoft.choose_arm": "failsoft.answer",
        "failsoft.clean": "failsoft.answer",
        "failsoft.ask": "failsoft.answer",
        "failsoft.call": "failsoft.ask",
        "failsoft.judge": "failsoft.call",
    }
    assert len({span.trace_id for span in receiver.spans}) == 1
    assert all(span.end_time_unix_nano >= span.start_time_unix_nano > 1_700_000_000e9 for span in receiver.spans)


async def test_spans_say_what_the_conventions_and_the_answer_say() -> None:
    with receiving() as receiver:
        async with gateway(config(receiver.url), plan(epoch=12)) as (_, http, _):
            await http.post("/v1/predict", json={"text": "play some jazz", "request_id": "q1"})
            await until(receiver, *ALL)
    root, call = receiver.one("POST /v1/predict"), receiver.one("failsoft.call")
    assert (root.kind, call.kind) == (SERVER, CLIENT)
    assert attributes(root) == {
        "http.request.method": "POST",
        "http.route": "/v1/predict",
        "url.path": "/v1/predict",
        "url.scheme": "http",
        "network.protocol.version": "1.1",
        "http.response.status_code": 200,
    }
    assert attributes(receiver.one("failsoft.answer")) == {
        "failsoft.request_id": "q1",
        "failsoft.row": 0,
        "failsoft.source": "primary",
        "failsoft.degrade_reason": "none",
        "failsoft.release": "r1",
        "failsoft.stage": "serving",
        "failsoft.epoch": 12,
    }
    assert (
        attributes(receiver.one("failsoft.ask")).items()
        >= {"failsoft.verdict": "good", "failsoft.arm": "subject"}.items()
    )
    assert (
        attributes(call).items() >= {"rpc.system": "ray_serve", "rpc.service": "blue", "rpc.method": "predict"}.items()
    )
    assert receiver.resources[0].items() >= {"service.name": "failsoft", "failsoft.app": "a1"}.items()


async def test_a_request_of_a_traced_caller_lies_in_its_trace_and_does_as_the_caller_decided() -> None:
    with receiving() as receiver:
        async with gateway(config(receiver.url, ratio=0.0, keep_degraded=False)) as (_, http, _):
            for flags in ("00", "01"):
                parent = {"traceparent": f"00-{TRACE}-{SPAN}-{flags}"}
                response = await http.post("/v1/predict", json={"text": "play some jazz"}, headers=parent)
                assert response.headers.get("x-trace-id") == (TRACE if flags == "01" else None)
            await until(receiver, *ALL)
    root = receiver.one("POST /v1/predict")
    assert (root.trace_id.hex(), root.parent_span_id.hex()) == (TRACE, SPAN)


async def test_of_no_share_a_good_answer_leaves_no_trace_and_one_of_the_fallback_does() -> None:
    with receiving() as receiver:
        async with gateway(config(receiver.url, ratio=0.0)) as (front, http, _):
            good = await http.post("/v1/predict", json={"text": "play some jazz"})
            front.model.logits = UNSURE
            weak = await http.post("/v1/predict", json={"text": "play some jazz"})
            await until(receiver, "failsoft.fallback", "failsoft.call")
    assert "x-trace-id" not in good.headers
    assert {span.trace_id.hex() for span in receiver.spans} == {weak.headers["x-trace-id"]}
    assert attributes(receiver.one("failsoft.answer"))["failsoft.degrade_reason"] == "weak"
    assert attributes(receiver.one("POST /v1/predict"))["failsoft.degrade_reason"] == "weak"
    assert attributes(receiver.one("failsoft.fallback")) == {"failsoft.source": "rules"}
    assert attributes(receiver.one("failsoft.ask"))["failsoft.verdict"] == "weak"


async def test_a_call_that_carries_several_requests_is_one_span_linked_with_each_of_them() -> None:
    with receiving() as receiver:
        async with gateway(config(receiver.url)) as (front, http, _):
            front.model.goes_on.clear()
            front.model.most_texts = 20
            asked = [asyncio.create_task(http.post("/v1/predict", json={"text": f"play {n}"})) for n in range(20)]
            await front.model.came.wait()
            front.model.goes_on.set()
            await asyncio.gather(*asked)
            await asyncio.to_thread(receiver.wait, lambda it: len(it.named("POST /v1/predict")) == 20)
            await asyncio.to_thread(receiver.wait, lambda it: len(it.named("failsoft.call")) == len(front.model.calls))
    asks = {span.span_id: span for span in receiver.named("failsoft.ask")}
    shared = [span for span in receiver.named("failsoft.call") if span.links]
    assert max(len(call.links) for call in shared) > 1
    for call in shared:
        assert len(call.links) == attributes(call)["failsoft.items"]
        for link in call.links:
            (back,) = asks[link.span_id].links
            assert (back.trace_id, back.span_id) == (call.trace_id, call.span_id)
            assert link.trace_id == asks[link.span_id].trace_id != call.trace_id


async def test_a_call_that_outlasts_its_request_comes_after_it_into_the_same_trace() -> None:
    with receiving() as receiver:
        async with gateway(config(receiver.url, ratio=0.0)) as (front, http, _):
            front.model.goes_on.clear()
            answered = await http.post("/v1/predict", json={"text": "play some jazz", "timeout_ms": 40.0})
            assert answered.json()["source"] == "rules"
            await until(receiver, "POST /v1/predict", "failsoft.call")
    call = receiver.one("failsoft.call")
    assert call.trace_id == receiver.one("POST /v1/predict").trace_id
    assert attributes(call)["error.type"] == "CancelledError"
    assert call.status.code == ERROR


async def test_items_of_one_request_are_spans_of_one_trace_each_with_its_own_steps() -> None:
    with receiving() as receiver:
        async with gateway(config(receiver.url)) as (_, http, _):
            await http.post("/v1/predict", json={"texts": ["play some jazz", "", "will it rain"]})
            await asyncio.to_thread(receiver.wait, lambda it: len(it.named("failsoft.answer")) == 3)
            root = receiver.one("POST /v1/predict")
            found = [span for span in receiver.named("failsoft.answer") if span.parent_span_id == root.span_id]
    assert sorted(attributes(span)["failsoft.row"] for span in found) == [0, 1, 2]


@pytest.mark.parametrize(
    ("failure", "status", "error"), [(ZeroDivisionError("a bug"), 500, "ZeroDivisionError"), (None, 413, None)]
)
async def test_what_never_reaches_a_model_is_traced_with_its_status(
    failure: Exception | None, status: int, error: str | None
) -> None:
    with receiving() as receiver:
        async with gateway(config(receiver.url)) as (front, http, _):
            front.fails_with = failure
            text = "a" if failure else "a" * 1_100_000
            response = await http.post("/v1/predict", json={"text": text})
            await until(receiver, "POST /v1/predict")
    root = receiver.one("POST /v1/predict")
    said = attributes(root)
    assert (response.status_code, said["http.response.status_code"], said.get("error.type")) == (status, status, error)
    assert (root.status.code == ERROR) == (status == 500)


async def test_a_held_back_model_is_not_asked_and_its_trace_shows_it() -> None:
    with receiving() as receiver:
        async with gateway(config(receiver.url), plan(Stage.DEGRADED, share=0.0)) as (_, http, _):
            await http.post("/v1/predict", json={"text": "play some jazz"})
            await until(receiver, "failsoft.fallback")
    assert not receiver.named("failsoft.ask")
    assert attributes(receiver.one("failsoft.answer"))["failsoft.stage"] == "degraded"


async def test_no_word_of_a_caller_is_in_what_is_sent() -> None:
    """Of texts, keys, callers and errors; the request's id is an id, and does go along."""
    with receiving() as receiver:
        async with gateway(config(receiver.url)) as (front, http, _):
            body = {"text": "my pin is 4711 xyzzy", "key": "xyzzy-key", "caller": "xyzzy-caller"}
            await http.post("/v1/predict?xyzzy", json=body, headers={"X-Session-Id": "xyzzy-session"})
            front.model.error = ValueError("xyzzy said the model")
            await http.post("/v1/predict", json=body)
            front.fails_with = ValueError("xyzzy said the gateway")
            await http.post("/v1/predict", json=body)
            await http.request("xyzzy", "/v1/predict")  # whatever a caller likes to write there
            await asyncio.to_thread(receiver.wait, lambda it: len(it.named("POST /v1/predict")) == 3)
            await until(receiver, "HTTP /v1/predict")
    assert receiver.bodies
    assert attributes(receiver.one("HTTP /v1/predict"))["http.request.method"] == "_OTHER"
    assert not any(b"xyzzy" in sent or b"4711" in sent for sent in receiver.bodies)


async def test_who_writes_of_a_request_elsewhere_is_told_its_trace_if_that_is_kept() -> None:
    heard: list[tuple[str, str]] = []

    with receiving() as receiver:
        async with gateway(config(receiver.url, ratio=0.0)) as (front, http, _):
            noted = front.notes.answered

            def answered(answer: Any, row: int, why: str, *rest: Any, **named: Any) -> None:
                heard.append((why, kept_trace_id()))
                noted(answer, row, why, *rest, **named)

            front.notes.answered = answered  # type: ignore[method-assign]  # to listen
            await http.post("/v1/predict", json={"text": "play some jazz"})
            front.model.logits = UNSURE
            weak = await http.post("/v1/predict", json={"text": "play some jazz"})
    assert heard == [("none", ""), ("weak", weak.headers["x-trace-id"])]
    assert kept_trace_id() == ""
