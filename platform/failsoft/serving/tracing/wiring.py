"""A gateway replica's parts with traces, or without: then they are the plain ones, and nothing here is asked again."""

from __future__ import annotations

import importlib
import random
import re
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any

from failsoft.errors import ConfigError
from failsoft.health.clock import Clock
from failsoft.serving.arms.handle_arm import HandleArm
from failsoft.serving.request import Answerer
from failsoft.serving.tracing.answering import TracedAnswerer
from failsoft.serving.tracing.calls import TracedArm
from failsoft.serving.tracing.config import TraceConfig
from failsoft.serving.tracing.layer import TraceLayer
from failsoft.serving.tracing.outbox import Outbox, Send
from failsoft.serving.tracing.tracer import Tracer
from failsoft.serving.web.way_in import NettedApp

PREDICT = "/v1/predict"
_INFER = re.compile(r"/v2/models/[^/]+(/versions/[^/]+)?/infer")


def route_of(path: str) -> str | None:
    """The route of a request for an answer; None: of any other."""
    if path == PREDICT:
        return PREDICT
    return "/v2/models/{model}/infer" if _INFER.fullmatch(path) else None


class Untraced:
    """Makes the plain parts."""

    def arm(self, *parts: Any, **named: Any) -> HandleArm:
        """See :class:`HandleArm`."""
        return HandleArm(*parts, **named)

    def answerer(self, **parts: Any) -> Answerer:
        """See :class:`Answerer`."""
        return Answerer(**parts)

    def put_around(self, app: NettedApp) -> None:
        """Nothing is put around it."""

    def status(self) -> Mapping[str, int] | None:
        """Spans by what became of them; None: nothing is traced."""
        return None


class Traced(Untraced):
    """Makes the parts that write down what they do.

    Args:
        config: where traces go, and how many.
        send: takes them there.
        clock: measures.
        rng: makes ids; those of two gateways must differ.
    """

    def __init__(self, config: TraceConfig, send: Send, *, clock: Clock, rng: random.Random) -> None:
        self._outbox = Outbox(config, send, rng=rng)
        self._tracer = Tracer(config, self._outbox, clock=clock, rng=rng)
        self._clock = clock

    def start(self) -> None:
        """Begin to send; what waits when the process ends is given a second."""
        self._outbox.start()

    def close(self) -> None:
        """End now: what waits is given a second."""
        self._outbox.close()

    def arm(self, *parts: Any, **named: Any) -> HandleArm:
        """See :class:`TracedArm`."""
        return TracedArm(self._tracer, *parts, **named)

    def answerer(self, **parts: Any) -> Answerer:
        """See :class:`TracedAnswerer`."""
        return TracedAnswerer(self._tracer, **parts)

    def put_around(self, app: NettedApp) -> None:
        """See :class:`TraceLayer`."""
        app.put_around(lambda inner: TraceLayer(inner, tracer=self._tracer, route_of=route_of))

    def status(self) -> Mapping[str, int]:
        """Spans by what became of them."""
        return self._tracer.status()


def traces_of(config: TraceConfig | None, *, gateway: str, app: str, clock: Clock) -> Untraced:
    """The traces of one gateway replica of one Serve application; started.

    Raises:
        ConfigError: traces are switched on, and what sends them is not installed here.
    """
    if config is None:
        return Untraced()
    resource = {"service.instance.id": gateway, "service.version": version("failsoft"), "failsoft.app": app}
    made = Traced(config, _sender(config, resource), clock=clock, rng=random.Random())
    made.start()
    return made


def traces_if_any(
    config: TraceConfig | None, *, gateway: str, app: str, clock: Clock, refused: Callable[[str], object]
) -> Untraced:
    """The same for a replica: a gateway that can't trace answers all the same; ``refused`` is told why it can't."""
    try:
        return traces_of(config, gateway=gateway, app=app, clock=clock)
    except ConfigError as error:
        refused(str(error))
        return Untraced()


def refuse_without_exporter(config: TraceConfig | None) -> None:
    """For composition roots: better to fail before anything starts.

    Raises:
        ConfigError: traces are switched on, and what sends them is not installed here.
    """
    if config is not None:
        _otlp()


def _sender(config: TraceConfig, resource: Mapping[str, str]) -> Send:
    send: Send = _otlp().OtlpSender(config, resource)
    return send


def _otlp() -> Any:
    """By name, so that a gateway without traces loads nothing of OpenTelemetry."""
    try:
        return importlib.import_module("failsoft.serving.tracing.otlp")
    except ImportError as error:
        raise ConfigError(
            f"traces are switched on, and what sends them is not installed ({error}); pip install 'failsoft[traces]' "
            "on every node, or leave the setting traces out"
        ) from error
