"""An own model behind everything but Ray: the example of ``docs/own_model.py``, published and asked over HTTP."""

from __future__ import annotations

import math
import runpy
from pathlib import Path
from typing import Any, cast

import httpx
from pydantic import BaseModel

from failsoft.artifacts.bundle import Bundle
from failsoft.artifacts.home import Home
from failsoft.health.clock import SystemClock
from failsoft.serving.arms.readings import NoReading, Reading
from failsoft.serving.arms.replies import ModelReply, read_reply
from failsoft.serving.config import GatewayConfig
from failsoft.serving.kit import Kit, open_shelf
from failsoft.serving.plain import without_tensors
from failsoft.serving.plan.plan import Colour
from failsoft.serving.request import Answerer, Situation
from failsoft.serving.several import answer_all
from failsoft.serving.task import AppSpec
from failsoft.serving.web.messages import Ask
from failsoft.serving.web.routes import Front, build_routes
from failsoft.serving.web.wire import wire_of
from tests.conftest import ROOT
from tests.serving.fakes import Notes, plan


def example() -> dict[str, Any]:
    """What ``docs/own_model.py`` defines."""
    return runpy.run_path(str(ROOT / "docs" / "own_model.py"))


class HereArm:
    """The model in this process; it scores and is judged as behind a handle."""

    def __init__(self, config: AppSpec, bundle: Bundle) -> None:
        self.model, self.quality, self.bundle = config.loader()(bundle), config.kind, bundle

    async def ask(self, text: Any, *, within_s: float = math.inf) -> Reading | NoReading:
        scores = without_tensors(self.model.predict([text]))
        reply = ModelReply(scores=scores, measures=self.bundle.measures(), release=self.bundle.name, load_generation=1)
        return read_reply(reply, self.quality, texts=1)[0]


class OwnWorld:
    """A gateway's parts around an own model.

    Args:
        config: the app.
        home: with a release of it.
    """

    def __init__(self, config: AppSpec, home: Path) -> None:
        self.releases = Home.find(home).releases(SystemClock())
        newest = self.releases.newest()
        assert newest is not None
        self.bundle, self.notes, self.plan = Bundle.of(newest), Notes(), plan(release=newest.name)
        self.kit: Kit = open_shelf(self.releases, newest.name, config.task()).kit
        self.arm = HereArm(config, self.bundle)
        self._config = config.task()
        self._answerer = Answerer(
            situation=self.situation,
            models={Colour.BLUE: self.arm},
            journal=self.notes,
            clock=SystemClock(),
            config=GatewayConfig(deadline_ms=60_000.0),  # a busy machine is not what these tests are about
            task=self._config,
        )
        self.app = build_routes(cast("Front", self), lambda _token: None, wire=wire_of(self._config))

    def situation(self) -> Situation:
        policy = self.kit.text_policy
        return Situation(plan=self.plan, text_policy=policy, subject_policy=policy, ladder=self.kit.ladder)

    async def predict(self, request: Ask) -> BaseModel:
        answers = await answer_all(self._answerer, request, request_id="q1", clock=SystemClock())
        return self._config.answers.several()(answers=answers) if request.is_several else answers[0]

    async def post(self, body: Any, *, raw: str | None = None) -> httpx.Response:
        """Ask over HTTP."""
        transport = httpx.ASGITransport(app=self.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://own") as client:
            if raw is not None:
                return await client.post("/v1/predict", content=raw, headers={"content-type": "application/json"})
            return await client.post("/v1/predict", json=body)

    def break_model(self) -> None:
        """As a drill's planned fault does: every weight is NaN."""
        self.arm.model = replace_weights(self.arm.model)


def replace_weights(model: Any) -> Any:
    """The same model with weights that are no numbers."""
    return type(model)(model.weights * float("nan"))
