"""The HTTP app with its nets around the whole of FastAPI, so that what they answer by themselves never enters it.

FastAPI puts layers of its own around every middleware that is added to it: one looks up telemetry for each request, one
limits bodies once more. For a gateway they took a sixth of its own time, for nothing. Its own telemetry is looked up in
the environment for each request, too, before any layer: it is off, a gateway's traces are made elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fastapi import FastAPI
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.types import ASGIApp

Layer = Callable[[ASGIApp], ASGIApp]
"""Puts something around an ASGI app."""
_OWN_TELEMETRY = ("tracing", "metrics", "logs")


class NettedApp(FastAPI):
    """A FastAPI app behind layers. Ray Serve reads its routes, so it stays one.

    Args:
        layers: from the inside to the outside.
        settings: FastAPI's own. Its handler of ``Exception`` answers what a layer raises, too.
    """

    def __init__(self, *, layers: Sequence[Layer], **settings: Any) -> None:
        super().__init__(**({"telemetry": dict.fromkeys(_OWN_TELEMETRY, False)} | settings))
        self._layers = tuple(layers)
        self._outermost: Layer | None = None

    def put_around(self, layer: Layer) -> None:
        """Put one more around all of it, what is said of an error of our own included; before the first request."""
        self._outermost = layer

    def build_middleware_stack(self) -> ASGIApp:
        """Called by Starlette once, before the first request."""
        app = super().build_middleware_stack()
        for layer in self._layers:
            app = layer(app)
        app = ServerErrorMiddleware(app, handler=self.exception_handlers.get(Exception))
        return app if self._outermost is None else self._outermost(app)
