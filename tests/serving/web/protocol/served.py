"""A gateway's answering behind the protocol, in this process: scripted model, real nets, real ladder. No Ray."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import httpx
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

from failsoft.serving.config import GatewayConfig
from failsoft.serving.intents import INTENTS
from failsoft.serving.plan.plan import Colour, RoutingPlan
from failsoft.serving.several import answer_all
from failsoft.serving.web.messages import Ask
from failsoft.serving.web.protocol.grpc_calls import GrpcCalls
from failsoft.serving.web.protocol.inference import Standing
from failsoft.serving.web.protocol.opening import open_protocol
from failsoft.serving.web.routes import Front, build_routes
from failsoft.serving.web.wire import wire_of
from tests.serving.counter import Counter
from tests.serving.web.test_routes import guard

MODEL = "failsoft"


class Served:
    """The example's task behind a gateway's routes."""

    def __init__(self, config: GatewayConfig | None = None) -> None:
        self.counter, self.config = Counter(), config or GatewayConfig()
        self.starting: frozenset[Colour] = frozenset()
        self.is_whole = True
        self.asked: list[Ask] = []
        limits = self.config
        self.app: FastAPI = build_routes(
            cast("Front", self),
            guard,
            wire=wire_of(INTENTS),
            max_body_bytes=limits.max_body_bytes,
            max_requests=limits.max_requests,
        )
        self.calls: GrpcCalls = open_protocol(self.app, limits, INTENTS, self.standing)

    def standing(self) -> Standing:
        return Standing(plan=self.counter.plan, starting=self.starting, is_whole=self.is_whole)

    async def predict(self, request: Ask) -> BaseModel:
        self.asked.append(request)
        given = request.request_id or "made-up"
        answers = await answer_all(self.counter.answerer, request, request_id=given, clock=self.counter.clock)
        return INTENTS.answers.several()(answers=answers) if request.is_several else answers[0]

    def follow(self, plan: RoutingPlan) -> None:
        self.counter.plan = plan

    def client(self, *, raises: bool = False) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=raises)
        return httpx.AsyncClient(transport=transport, base_url="http://gateway")


def infer_path(release: str = "") -> str:
    return f"/v2/models/{MODEL}{f'/versions/{release}' if release else ''}/infer"


def texts(*said: str, **more: Any) -> dict[str, Any]:
    """A request as JSON."""
    return {"inputs": [{"name": "text", "datatype": "BYTES", "shape": [len(said)], "data": list(said)}]} | more


def by_name(answer: dict[str, Any]) -> dict[str, list[Any]]:
    """Values of all outputs that came as JSON."""
    return {output["name"]: output["data"] for output in answer["outputs"]}


@contextmanager
def listening(app: FastAPI) -> Iterator[str]:
    """Host and port of a real server of this app, in a thread."""
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="critical", access_log=False))
    started = threading.Event()
    begin = server.startup

    async def startup(*args: Any, **settings: Any) -> None:
        await begin(*args, **settings)
        started.set()

    server.startup = startup  # type: ignore[method-assign]  # uvicorn tells nobody else
    thread = threading.Thread(target=server.run, name="uvicorn")
    thread.start()
    assert started.wait(30.0), "the server did not start"
    try:
        yield f"127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30.0)
