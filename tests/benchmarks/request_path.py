"""A gateway's own path in this process: routes, answerer, books, watch and ladder are the real ones; no Ray, no socket.

The model answers at once, so what is left is what a gateway itself takes for a request. ``python -m
tests.benchmarks.request_path`` prints the functions that take most of it.
"""

from __future__ import annotations

import asyncio
import cProfile
import json
import pstats
import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from pydantic import BaseModel
from starlette.types import ASGIApp, Message

from failsoft.artifacts.bundle import Baseline
from failsoft.health.clock import SystemClock
from failsoft.models.scores import ScoreBatch
from failsoft.serving.arms.coalescer import Coalescer
from failsoft.serving.arms.mirror import MirrorQueue
from failsoft.serving.arms.readings import NoReading, Reading
from failsoft.serving.arms.replies import ModelReply, read_reply
from failsoft.serving.config import GatewayConfig
from failsoft.serving.intake.sanitizer import TextPolicy
from failsoft.serving.intents import INTENTS
from failsoft.serving.kit import Kit, KitShelf
from failsoft.serving.plan.plan import Colour, RoutingPlan, Stage
from failsoft.serving.request import Answerer, Mirrored
from failsoft.serving.rollout.stages import stage_policy
from failsoft.serving.several import answer_all
from failsoft.serving.watching.answer_history import AnswerHistory
from failsoft.serving.watching.front import FrontDesk
from failsoft.serving.watching.outcomes import OutcomeBuffer
from failsoft.serving.watching.specimens import SpecimenPolicy, Specimens
from failsoft.serving.watching.watch import Watch
from failsoft.serving.web.messages import Ask
from failsoft.serving.web.routes import build_routes
from failsoft.serving.web.wire import wire_of
from tests.benchmarks.load_client import TEXTS
from tests.serving.fakes import ladder, plan
from tests.serving.labels import labels_of
from tests.serving.web.test_routes import FakeFront, guard

REQUESTS = 50


class AtOnce:
    """A model whose scores are there when they are asked for; they travel and are judged as any."""

    def __init__(self) -> None:
        self.coalescer: Coalescer[Reading | NoReading] = Coalescer(self._call, max_held=64)
        self.starting = False

    @property
    def held(self) -> int:
        """Texts at the model."""
        return self.coalescer.held

    async def ask(self, text: Any, *, within_s: float = 0.0) -> Reading | NoReading:
        """See :class:`failsoft.serving.arms.readings.ModelArm`."""
        del within_s
        return await self.coalescer.ask(text)

    async def _call(self, texts: list[Any]) -> list[Reading]:
        count = len(texts)
        scores = ScoreBatch(
            intents=("play_music", "get_weather"),
            intent_logits_BC=np.asarray([(9.0, 0.0)] * count, dtype=np.float32),
            spans=[[]] * count,
            counts_B=np.full(count, 6, dtype=np.int32),
            oov_fraction_B=np.zeros(count, dtype=np.float32),
            left_out_B=np.zeros(count, dtype=np.int32),
        )
        reply = ModelReply(scores=scores, measures={"temperature": 1.0}, release="r1", load_generation=1, took_ms=1.0)
        return list(read_reply(reply, INTENTS.kind, texts=count))


class Path(FakeFront):
    """What stands behind the routes of one gateway."""

    def __init__(self, now: RoutingPlan) -> None:
        super().__init__()
        self._clock, self._now = SystemClock(), now
        desk = self._desk()
        self._answerer = Answerer(
            situation=desk.situation,
            models={Colour.BLUE: AtOnce()},
            journal=desk,
            clock=self._clock,
            config=GatewayConfig(),
            task=INTENTS,
        )

    async def predict(self, request: Ask) -> BaseModel:  # type: ignore[override]  # of any form
        """As the gateway does."""
        answers = await answer_all(self._answerer, request, request_id=request.request_id or "r", clock=self._clock)
        return answers[0]

    def _desk(self) -> FrontDesk:
        policy = stage_policy("production")
        watch, buffer = Watch(policy.health, lambda *_: None, policy.signals), OutcomeBuffer("g1")
        kit = Kit(release="r1", ladder=ladder(), text_policy=TextPolicy(), baseline=_BASELINE)
        desk = FrontDesk(
            plan=lambda: self._now,
            shelf=KitShelf(lambda _: kit, kit),
            watch=watch,
            buffer=buffer,
            mirror=MirrorQueue[Mirrored](8),
            labels=labels_of(lambda: self._now, watch, buffer, clock=self._clock),
        )
        desk.on_answer = AnswerHistory(
            "g1", lambda: self._now, self._clock, Specimens(SpecimenPolicy(), random.Random(7))
        ).answered
        return desk


_BASELINE = Baseline(
    samples=700,
    weak_fraction=0.02,
    entropy_mean=0.1,
    entropy_std=0.1,
    logit_std=3.0,
    oov_fraction=0.05,
    label_mix={"play_music": 0.5, "get_weather": 0.5},
    latency_p95_ms=5.0,
)


def apps() -> Mapping[str, ASGIApp]:
    """The same path while the model serves, and while the ladder does."""
    plans = {"the model answers": plan(), "degraded": plan(Stage.DEGRADED, share=0.0)}
    return {name: build_routes(Path(now), guard, wire=wire_of(INTENTS)) for name, now in plans.items()}


def requests(loop: asyncio.AbstractEventLoop, app: ASGIApp, *, clients: int = 1) -> Callable[[], None]:
    """Asks ``REQUESTS`` times, ``clients`` at once; each is to be answered with 200."""

    async def one(text: str) -> None:
        body = json.dumps({"text": text}).encode()
        length = (b"content-length", str(len(body)).encode())
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/predict",
            "query_string": b"",
            "headers": [(b"content-type", b"application/json"), length],
        }

        parts = [body]

        async def receive() -> Message:
            if not parts:  # a caller that stays: the gateway waits for it to leave
                await asyncio.get_running_loop().create_future()
            return {"type": "http.request", "body": parts.pop(), "more_body": False}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                assert message["status"] == 200

        await app(scope, receive, send)

    async def some() -> None:
        for first in range(0, REQUESTS, clients):
            await asyncio.gather(*(one(TEXTS[(first + number) % len(TEXTS)]) for number in range(clients)))

    return lambda: loop.run_until_complete(some())


def main() -> None:
    """Profile both."""
    loop = asyncio.new_event_loop()
    for name, app in apps().items():
        run = requests(loop, app, clients=10)
        run()
        profile = cProfile.Profile()
        with profile:
            for _ in range(40):
                run()
        print(f"== {name}")
        pstats.Stats(profile).sort_stats("tottime").print_stats(35)
    loop.close()


if __name__ == "__main__":
    main()
