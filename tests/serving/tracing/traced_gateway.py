"""The request path of a gateway with traces, in this process: routes, answering, arms and ladder are the real ones."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager
from typing import Any, cast

import httpx
from pydantic import BaseModel
from ray.serve.handle import DeploymentHandle

from failsoft.health.clock import SystemClock
from failsoft.serving.arms.replies import ModelReply
from failsoft.serving.config import GatewayConfig
from failsoft.serving.intake.sanitizer import TextPolicy
from failsoft.serving.intents import INTENTS
from failsoft.serving.plan.plan import Colour, RoutingPlan
from failsoft.serving.quality.intents import IntentsAndEntities
from failsoft.serving.request import Situation
from failsoft.serving.several import answer_all
from failsoft.serving.tracing.config import TraceConfig
from failsoft.serving.tracing.otlp import OtlpSender
from failsoft.serving.tracing.wiring import Traced, Untraced
from failsoft.serving.web.messages import Ask
from failsoft.serving.web.routes import build_routes
from failsoft.serving.web.wire import wire_of
from tests.serving.arms.test_handle_arm import reply
from tests.serving.fakes import Notes, ladder, plan
from tests.serving.web.test_routes import FakeFront, guard

SURE, UNSURE = (9.0, 0.0), (float("nan"), 0.0)


class Model:
    """A deployment handle whose answers are scripted; its calls wait while it is held."""

    def __init__(self) -> None:
        self.deployment_name = "blue"
        self.predict = self.describe = self
        self.logits: tuple[float, ...] = SURE
        self.error: Exception | None = None
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.calls: list[list[str]] = []
        self.most_texts, self.came = 0, asyncio.Event()

    def remote(self, texts: list[str] | None = None, within_s: float = 0.0) -> _Response:
        if texts is not None:
            self.calls.append(texts)
            if sum(map(len, self.calls)) >= self.most_texts:
                self.came.set()
        return _Response(self, 0 if texts is None else len(texts))


class _Response:
    def __init__(self, model: Model, texts: int) -> None:
        self._model, self._texts = model, texts

    def cancel(self) -> None:
        """A replica finishes what it has begun."""

    def __await__(self) -> Generator[Any, None, ModelReply | None]:
        if not self._texts:
            return None
        yield from self._model.goes_on.wait().__await__()
        if self._model.error is not None:
            raise self._model.error
        return reply(*self._model.logits, texts=self._texts)


class TracedFront(FakeFront):
    """Answers as a gateway does."""

    def __init__(self, traces: Untraced, now: RoutingPlan) -> None:
        super().__init__()
        self.model, self.notes, self.plan = Model(), Notes(), now
        self.clock = SystemClock()
        self.arm = traces.arm(cast("DeploymentHandle[Any]", self.model), IntentsAndEntities())
        self.arm.starting = False
        rungs = ladder()
        self._answerer = traces.answerer(
            situation=lambda: Situation(
                plan=self.plan, text_policy=TextPolicy(), subject_policy=TextPolicy(), ladder=rungs
            ),
            models={Colour.BLUE: self.arm},
            journal=self.notes,
            clock=self.clock,
            config=GatewayConfig(deadline_ms=30_000.0, max_deadline_ms=30_000.0),
            task=INTENTS,
        )

    async def predict(self, request: Ask) -> BaseModel:  # type: ignore[override]  # of any form
        if self.fails_with:
            raise self.fails_with
        answers = await answer_all(
            self._answerer, request, request_id=request.request_id or "made-up", clock=self.clock
        )
        return INTENTS.answers.several()(answers=answers) if request.is_several else answers[0]


def config(url: str, **changes: Any) -> TraceConfig:
    usual: dict[str, Any] = {"endpoint": url, "ratio": 1.0, "every_s": 0.02, "max_kept_per_s": 1000.0}
    return TraceConfig(**(usual | changes))


@asynccontextmanager
async def gateway(
    settings: TraceConfig, now: RoutingPlan | None = None
) -> AsyncIterator[tuple[TracedFront, httpx.AsyncClient, Traced]]:
    """A gateway that sends its traces where the settings say, and a client of it."""
    traces = Traced(settings, OtlpSender(settings, {"failsoft.app": "a1"}), clock=SystemClock(), rng=random.Random(7))
    front = TracedFront(traces, now or plan())
    app = build_routes(front, guard, wire=wire_of(INTENTS), max_requests=64)
    traces.put_around(app)
    traces.start()
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as http:
            yield front, http, traces
    finally:
        await asyncio.to_thread(traces.close)
