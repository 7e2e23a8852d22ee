"""A small app of texts behind the real gateway and the real controller, in this process: only the models are fakes.

What stands between them on Ray (handles, the actor around the controller, the exporter) is replaced by calls.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import uvicorn
from ray import serve
from ray.exceptions import RayActorError

from failsoft.artifacts.bundle import Bundle
from failsoft.errors import ServingError
from failsoft.health.metric import Metric
from failsoft.serving import gateway as gateway_module
from failsoft.serving.arms.replies import ModelReply
from failsoft.serving.config import AppConfig, GatewayConfig
from failsoft.serving.fallback.plain_rungs import ConstantRung, FunctionRung
from failsoft.serving.plan.follower import PlanFollower
from failsoft.serving.plan.plan import Colour
from failsoft.serving.publishing import publish_own
from failsoft.serving.quality.classes import Classification
from failsoft.serving.rollout.control import Controller
from failsoft.serving.rollout.controller import ControllerClient, ControllerConfig, controller_of
from failsoft.serving.seam import Rung
from failsoft.serving.task import AppSpec
from failsoft.serving.watching import answer_history
from failsoft.serving.watching.specimens import SpecimenPolicy
from failsoft.serving.web.mounting import CONSOLE
from tests.drills.cluster import free_ports

LABELS = ("play_music", "get_weather", "set_alarm")
WORDS = {"jazz": 0, "song": 0, "rain": 1, "sunny": 1, "wake": 2, "timer": 2}
TEXTS = [f"{start} {word} {end}" for start in ("please", "now") for word in WORDS for end in ("in Berlin", "for Ann 7")]
WAIT_S = 60.0


class Mood(StrEnum):
    """What ails the model."""

    WELL = "well"
    GARBAGE = "garbage"
    HANGS = "hangs"
    CRASHES = "crashes"
    SLOW = "slow"


class Keywords:
    """Knows six words."""

    @classmethod
    def load(cls, _bundle: Bundle) -> Keywords:
        return cls()

    def predict(self, batch: list[str]) -> np.ndarray:
        logits = np.zeros((len(batch), len(LABELS)))
        for row, text in enumerate(batch):
            for word, label in WORDS.items():
                logits[row, label] += 8.0 * (word in text)
        return logits


def rungs(_bundle: Bundle) -> list[Rung]:
    return [FunctionRung("rules", lambda text: LABELS[0] if "jazz" in text else None), ConstantRung("help")]


SPEC = AppSpec(predictor=Keywords, quality=Classification(labels=LABELS), rungs=rungs)


class FakeModel:
    """What a handle of Serve would be: calls of it end as its mood has it."""

    deployment_name = "blue"

    def __init__(self, release: str) -> None:
        self.mood, self.release = Mood.WELL, release
        self.predict, self.describe = _Method(self._predict), _Method(self._describe)
        self._turn = asyncio.Lock()

    async def _describe(self) -> None:
        return None

    async def _predict(self, texts: list[str], _within_s: float) -> ModelReply:
        if self.mood is Mood.HANGS:
            await asyncio.Event().wait()
        if self.mood is Mood.CRASHES:
            raise RayActorError
        if self.mood is Mood.SLOW:
            async with self._turn:
                await asyncio.sleep(0.1)
        scores = Keywords().predict(texts)
        if self.mood is Mood.GARBAGE:
            scores = scores * 0.01
        return ModelReply(scores=scores, measures={}, release=self.release, load_generation=1, took_ms=1.0)

    def ready(self) -> Mapping[Colour, float]:
        """Share of its replicas that are ready, as Serve would say."""
        return {Colour.BLUE: 0.0 if self.mood is Mood.CRASHES else 1.0}


class _Method:
    def __init__(self, answers: Any) -> None:
        self._answers = answers

    def remote(self, *arguments: Any) -> asyncio.Future[Any]:
        call: asyncio.Future[Any] = asyncio.ensure_future(self._answers(*arguments))
        return call


class _Nowhere:
    """Where metrics go."""

    def add(self, metric: Metric, amount: float, labels: Mapping[str, str]) -> None: ...
    def put(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None: ...
    def observe(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None: ...


@dataclass
class AppHere:
    """A gateway that answers at an address."""

    url: str
    model: FakeModel
    home: Path
    loop: asyncio.AbstractEventLoop

    def ail(self, mood: Mood) -> None:
        """From now on the model is like this."""
        self.loop.call_soon_threadsafe(setattr, self.model, "mood", mood)


def publish(home: Path) -> str:
    """A release of the app; its name."""
    files = home / "model"
    files.mkdir(parents=True)
    (files / "words.json").write_text(json.dumps(WORDS))
    return publish_own(SPEC, files, healthy=TEXTS * 10, home=home).name


@contextmanager
def app_here(
    home: Path,
    patch: pytest.MonkeyPatch,
    *,
    span_s: float = 0.3,
    mounts: tuple[str, ...] = (CONSOLE,),
    reader_token: bool = False,
    **limits: Any,
) -> Iterator[AppHere]:
    """The app for the time of the block. Spans of the history are short, so that nobody has to wait for them."""
    release = publish(home)
    _without_ray(patch, span_s)
    given: dict[str, Any] = {"specimens": SpecimenPolicy(), "deadline_ms": 2000.0} | limits
    config = AppConfig(
        home=home,
        release=release,
        task=SPEC.task(),
        gateway=GatewayConfig(**given),
        mounts=mounts,
        reader_token=reader_token,
    )
    began, told, over = threading.Event(), list[AppHere](), threading.Event()

    def work() -> None:
        try:
            asyncio.run(_serve(config, patch, told, began, over))
        finally:
            began.set()  # also where it did not start: pytest tells why

    thread = threading.Thread(target=work)
    thread.start()
    try:
        began.wait(WAIT_S)
        assert told, "the gateway did not start"
        yield told[0]
    finally:
        over.set()
        thread.join(WAIT_S)


def _without_ray(patch: pytest.MonkeyPatch, span_s: float) -> None:
    patch.setattr(answer_history, "SPAN_S", span_s)
    patch.setattr(gateway_module, "_RELEASE_RETRY_S", span_s)
    patch.setattr(gateway_module, "RaySink", _Nowhere)
    patch.setattr(serve, "get_replica_context", lambda: SimpleNamespace(app_name="failsoft"))
    patch.setattr(gateway_module, "start_controller", lambda _config: None)


async def _serve(
    config: AppConfig, patch: pytest.MonkeyPatch, told: list[AppHere], began: threading.Event, over: threading.Event
) -> None:
    model = FakeModel(config.release)
    controller = Controller(asdict(controller_of(config)), model.ready)
    patch.setattr(gateway_module, "ControllerClient", lambda given, name="": _Client(given, controller, name))
    patch.setattr(gateway_module, "follow_plans", lambda given, name: _follower(given, controller, name))
    gateway = gateway_module.Gateway.__new__(gateway_module.Gateway)
    await gateway.__init__(config, model, None, None)  # type: ignore[misc]
    port = free_ports(1)[0]
    app = gateway.__serve_build_asgi_app__()
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="critical", access_log=False))
    server.config.timeout_graceful_shutdown = 1
    serving = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 -- uvicorn tells nobody
        await asyncio.sleep(0.01)
    url = f"http://127.0.0.1:{port}"
    told.append(AppHere(url=url, model=model, home=config.home, loop=asyncio.get_running_loop()))
    began.set()
    await asyncio.to_thread(over.wait)
    server.should_exit = True
    await serving
    await controller.stop()


class _Client(ControllerClient):
    """Asks a controller in this process."""

    def __init__(self, config: ControllerConfig, controller: Controller, name: str) -> None:
        super().__init__(config, name=name)
        self._here = controller

    async def _call(self, method: str, *arguments: Any, within_s: float = 10.0) -> Any:
        try:
            async with asyncio.timeout(within_s):
                return await getattr(self._here, method)(*arguments)
        except TimeoutError as error:
            raise ServingError(f"no answer to {method}") from error


def _follower(config: ControllerConfig, controller: Controller, name: str) -> PlanFollower:
    from failsoft.health.clock import SystemClock
    from failsoft.serving.rollout.first_plan import first_plan

    return PlanFollower(_Client(config, controller, name), name=name, clock=SystemClock(), first=first_plan(config))
