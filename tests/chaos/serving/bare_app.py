"""A Serve app as its author wrote it, without any net: an ingress that asks a model."""

from __future__ import annotations

from typing import Any

from ray import serve
from ray.serve.handle import DeploymentHandle
from starlette.requests import Request

_LIGHT = {"num_cpus": 0.1}


class Model:
    def predict(self, text: str) -> dict[str, Any]:
        return {"label": "long" if len(text) > 9 else "short", "score": len(text) / (len(text) + 10.0)}


class Front:
    def __init__(self, model: DeploymentHandle[Any]) -> None:
        self._model = model

    async def __call__(self, request: Request) -> dict[str, Any]:
        body = await request.json()
        answer: dict[str, Any] = await self._model.predict.remote(body["text"])
        return answer


front = serve.deployment(name="front", ray_actor_options=_LIGHT)(Front)
model = serve.deployment(name="model", ray_actor_options=_LIGHT)(Model)
app = front.bind(model.bind())
