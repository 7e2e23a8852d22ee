"""What traces cost a request: a gateway's path in this process with them off, recorded and thrown away, and kept."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable
from typing import Any

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from starlette.types import ASGIApp, Message

from failsoft.health.clock import SystemClock
from failsoft.serving.intents import INTENTS
from failsoft.serving.tracing.config import TraceConfig
from failsoft.serving.tracing.otlp import readable
from failsoft.serving.tracing.spans import Kind, Span, Spot
from failsoft.serving.tracing.wiring import Traced, Untraced
from failsoft.serving.web.routes import build_routes
from failsoft.serving.web.wire import wire_of
from tests.benchmarks.measuring import Contender, interleave
from tests.benchmarks.outcome import Outcome
from tests.serving.fakes import plan
from tests.serving.tracing.traced_gateway import TracedFront
from tests.serving.web.test_routes import guard

_BODY = json.dumps({"text": "please play some jazz in the kitchen"}).encode()
_SCOPE: dict[str, Any] = {
    "type": "http",
    "method": "POST",
    "path": "/v1/predict",
    "query_string": b"",
    "headers": [(b"content-type", b"application/json"), (b"content-length", str(len(_BODY)).encode())],
}
_REQUESTS = 20
OFF, THROWN, KEPT = "traces off", "recorded, thrown away", "recorded and kept"


def tracing(outcome: Outcome, rounds: int) -> None:
    """A request alone in its gateway, whose model answers at once; by the process's own time."""
    loop = asyncio.new_event_loop()
    quiet = TraceConfig(endpoint="http://127.0.0.1:4318/v1/traces", ratio=0.0)
    all_of_it = TraceConfig(endpoint=quiet.endpoint, ratio=1.0, max_kept_per_s=10_000.0, max_waiting_spans=1_000_000)
    apps = {
        OFF: _app(Untraced()),
        THROWN: _app(_traced(quiet)),
        KEPT: _app(_traced(all_of_it)),
    }
    contenders = [Contender(name=name, run=_requests(loop, app)) for name, app in apps.items()]
    timings = interleave(contenders, rounds=rounds, control=OFF, now=time.process_time)
    loop.close()
    for seconds in timings.seconds.values():
        seconds[:] = [one / _REQUESTS for one in seconds]
    outcome.add("one request in a gateway, without HTTP", timings)
    for name, key in ((THROWN, "thrown_away"), (KEPT, "kept")):
        outcome.ratios[f"trace_{key}_over_off"] = timings.ratio(name, OFF)
    _sending(outcome, rounds)


def _sending(outcome: Outcome, rounds: int) -> None:
    """What the sending thread does for a batch, but for the network."""
    resource = Resource.create({})
    spans = [Span("failsoft.ask", Kind.INTERNAL, Spot(7, n + 1), 1, 0.0) for n in range(128)]
    for span in spans:
        span.attributes |= {"failsoft.arm": "subject", "failsoft.verdict": "good", "failsoft.time_left_ms": 240.0}

    def written_down() -> bytes:
        message = encode_spans([readable(span, 1_700_000_000.0, resource) for span in spans])
        return bytes(message.SerializeToString())

    contenders = [Contender(name="128 spans to OTLP", run=written_down)]
    outcome.add("the sending thread", interleave(contenders, rounds=rounds, control="128 spans to OTLP"))


def _traced(config: TraceConfig) -> Traced:
    """What is kept is thrown away by a thread, as fast as it comes."""
    traces = Traced(config, lambda _: None, clock=SystemClock(), rng=random.Random(7))
    traces.start()
    return traces


def _app(traces: Untraced) -> ASGIApp:
    app = build_routes(TracedFront(traces, plan()), guard, wire=wire_of(INTENTS))
    traces.put_around(app)
    return app


def _requests(loop: asyncio.AbstractEventLoop, app: ASGIApp) -> Callable[[], None]:
    async def receive() -> Message:
        return {"type": "http.request", "body": _BODY, "more_body": False}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            assert message["status"] == 200

    async def some() -> None:
        for _ in range(_REQUESTS):
            await app(dict(_SCOPE), receive, send)

    return lambda: loop.run_until_complete(some())
