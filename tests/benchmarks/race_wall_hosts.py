"""Others' ways through the incident race on real processes: an old image put back, and the window of the articles.

Both serve the same model as ``incident_app.py`` does, broken by the same file in the same way.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from ray import serve
from ray.serve import Application
from ray.serve.config import HTTPOptions, ProxyLocation
from ray.serve.schema import LoggingConfig

from failsoft.artifacts.bundle import Bundle
from failsoft.artifacts.home import Home
from failsoft.health.clock import SystemClock
from failsoft.health.faults import FaultKind
from failsoft.health.window import Outcome
from failsoft.ingress import LOOPBACK
from failsoft.models.scores import ScoreBatch
from failsoft.serving.defence import QualityPolicy, judge
from tests.benchmarks.gateway_bare import ONGOING, BareIngress, answer_of
from tests.benchmarks.gateway_single import Question
from tests.benchmarks.incident_app import Breakable
from tests.serving.tiny_release import CALIBRATION

_LOOK_S = 0.05
COOL_S = 5.0
"""As long as failsoft's whole way back takes with the drill's stages, or less."""


def order_of(home: Path) -> Path:
    """While this file is there, the old image is to be put back."""
    return home / "faults" / "redeploy"


class Broken:
    """The model; once the planned fault is there, a share of its answers is bad until another process loads it."""

    def __init__(self, home: Path, *, breaks: bool) -> None:
        newest = Home.find(home).releases(SystemClock()).newest()
        assert newest is not None
        self._model = Breakable.load(Bundle.of(newest))
        self._sign = Home.find(home).faults / FaultKind.BROKEN_WEIGHTS
        self._left = breaks

    def predict(self, texts: Sequence[str]) -> ScoreBatch:
        """The model's scores."""
        if self._left and self._sign.exists():
            self._model.break_weights()
            self._left = False
        return self._model.predict(texts)


class BrokenModel:
    """Behind a handle."""

    def __init__(self, home: Path, *, breaks: bool) -> None:
        self._model = Broken(home, breaks=breaks)

    def predict(self, text: str) -> dict[str, Any]:
        """The answer to one text."""
        return answer_of(self._model.predict([text])) | {"source": "primary"}


def _image(home: Path, *, breaks: bool) -> Application:
    options: dict[str, Any] = {"ray_actor_options": {"num_cpus": 0.1}, "max_ongoing_requests": ONGOING}
    model = serve.deployment(name="model", **options)(BrokenModel)
    return serve.deployment(name="ingress", **options)(BareIngress).bind(model.bind(home, breaks=breaks))


@contextmanager
def redeployable(home: Path, port: int) -> Iterator[None]:
    """Bare Serve at one replica each; the old image, which never breaks, is at hand: no registry is asked."""
    http, quiet = HTTPOptions(host=LOOPBACK, port=port), LoggingConfig(log_level="WARNING", enable_access_log=False)
    serve.start(http_options=http, proxy_location=ProxyLocation.HeadOnly, logging_config=quiet)
    over = threading.Event()

    def run(*, breaks: bool) -> None:
        serve.run(_image(home, breaks=breaks), name="bare", route_prefix="/", logging_config=quiet)

    def obey() -> None:
        while not over.wait(_LOOK_S):
            if order_of(home).exists():
                run(breaks=False)
                return

    run(breaks=True)
    thread = threading.Thread(target=obey, name="redeploy")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        serve.shutdown()


def windowed_app(home: Path, *, size: int = 100, least: int = 20, limit: float = 0.2) -> FastAPI:
    """A window over the confidences; open it gives one fixed answer, which stands for any fallback, for some time."""
    model, app, clock = Broken(home, breaks=True), FastAPI(), SystemClock()
    seen: deque[bool] = deque(maxlen=size)
    policy, open_until_s = QualityPolicy(), 0.0

    async def predict(question: Question) -> dict[str, Any]:
        nonlocal open_until_s
        if clock.monotonic_s() < open_until_s:
            return {"intent": "unknown", "source": "rules", "stage": "degraded"}
        scores = model.predict([question.text])
        (judgement,) = judge(scores.intent_logits_BC, CALIBRATION.temperature, policy)
        seen.append(judgement.outcome is not Outcome.GOOD)
        if len(seen) >= least and sum(seen) / len(seen) >= limit:
            open_until_s = clock.monotonic_s() + COOL_S
            seen.clear()
        return answer_of(scores) | {"source": "primary"}

    app.add_api_route("/v1/predict", predict, methods=["POST"])
    return app
