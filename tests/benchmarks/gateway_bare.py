"""Bare Ray Serve for the gateway's benchmark: an ingress that asks the model and gives what it says. No nets at all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from ray import serve
from ray.serve import Application
from ray.serve.handle import DeploymentHandle
from starlette.requests import Request

from failsoft.artifacts.bundle import Bundle
from failsoft.artifacts.home import Home
from failsoft.health.clock import SystemClock
from failsoft.models.scores import ScoreBatch

if TYPE_CHECKING:
    from serve_apps.predictor import ServedPredictor

_LIGHT = {"num_cpus": 0.1}
ONGOING = 512
"""As many as ours lets in: Serve's own 5 would be measured otherwise, not the path."""


def answer_of(scores: ScoreBatch) -> dict[str, Any]:
    """The first row as a caller wants it."""
    logits_C = scores.intent_logits_BC[0]  # C intents
    shares_C = np.exp(logits_C - logits_C.max())
    best = int(logits_C.argmax())
    return {
        "intent": scores.intents[best],
        "confidence": float(shares_C[best] / shares_C.sum()),
        "entities": [span._asdict() for span in scores.spans[0]],
    }


def load_newest(home: Path) -> ServedPredictor:
    """The model of the newest release."""
    from serve_apps.predictor import ServedPredictor  # the ingress stays free of torch, as ours does

    newest = Home.find(home).releases(SystemClock()).newest()
    assert newest is not None
    return ServedPredictor.load(Bundle.of(newest))


class BareModel:
    """The model behind a handle."""

    def __init__(self, home: Path) -> None:
        self._model = load_newest(home)

    def predict(self, text: str) -> dict[str, Any]:
        """The answer to one text."""
        return answer_of(self._model.predict([text]))


class LeanModel(BareModel):
    """The same without Serve's thread for each call: it computes where its replica hears, and nobody else is heard."""

    async def predict(self, text: str) -> dict[str, Any]:  # type: ignore[override]
        """The answer to one text."""
        return super().predict(text)


class BareIngress:
    """Takes ``{"text": …}`` on any path."""

    def __init__(self, model: DeploymentHandle[Any]) -> None:
        self._model = model

    async def __call__(self, request: Request) -> dict[str, Any]:
        """Ask the model."""
        body = await request.json()
        answer: dict[str, Any] = await self._model.predict.remote(body["text"])
        return answer


def bare_app(home: Path, *, lean: bool = False) -> Application:
    """Both, one replica each; ``lean`` is as quick as one can write it."""
    options: dict[str, Any] = {"ray_actor_options": _LIGHT, "max_ongoing_requests": ONGOING}
    model = serve.deployment(name="model", **options)(LeanModel if lean else BareModel)
    ingress = serve.deployment(name="ingress", **options)(BareIngress)
    return ingress.bind(model.bind(home))
