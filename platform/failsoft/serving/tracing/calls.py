"""The calls of a colour's model, each written down once, however many requests it carries."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

from failsoft.serving.arms.handle_arm import Due, HandleArm
from failsoft.serving.arms.readings import NoReading, Reading
from failsoft.serving.arms.replies import ModelReply
from failsoft.serving.tracing.spans import HERE, Here, Kind, SharedCall, Span
from failsoft.serving.tracing.tracer import Tracer

_CALL: ContextVar[tuple[SharedCall, Span] | None] = ContextVar("failsoft_call", default=None)


class TracedArm(HandleArm):
    """Asks as :class:`HandleArm` does.

    The replica's own time comes back with its reply and stands on the call's span. It has no span of its own there: it
    would need an exporter in each replica, and tell its moments by another machine's clock.

    Args:
        tracer: keeps the calls of traces that are kept.
        parts: what a :class:`HandleArm` is made from.
    """

    def __init__(self, tracer: Tracer, *parts: Any, **named: Any) -> None:
        super().__init__(*parts, **named)
        self._tracer = tracer

    def _due(self, text: Any, until_s: float) -> Due:
        return Due(text, until_s, HERE.get())

    async def _ask_all(self, dues: Sequence[Due]) -> Sequence[Reading | NoReading]:
        """The context of the running task is that of whichever request came first, so it is asked for nothing here."""
        askers = [due.asker for due in dues if isinstance(due.asker, Here)]
        if not askers:
            return await super()._ask_all(dues)
        call, span = self._tracer.call("failsoft.call", askers)
        name = self._handle.deployment_name
        span.attributes |= {"rpc.system": "ray_serve", "rpc.service": name, "rpc.method": "predict"}
        span.attributes["failsoft.items"] = len(dues)
        token = _CALL.set((call, span))
        try:
            readings = await super()._ask_all(dues)
            _say_failure(span, readings)
        except BaseException as error:  # cancelled: nobody waits for it any more
            span.fails(type(error).__name__)
            raise
        finally:
            _CALL.reset(token)
            call.end(span)
            call.over()
        return readings

    async def _call(self, texts: Sequence[Any], within_s: float) -> ModelReply:
        reply = await super()._call(texts, within_s)
        here = _CALL.get()
        if here is not None:
            _, span = here
            span.attributes |= {"failsoft.release": reply.release, "failsoft.load_generation": reply.load_generation}
            if math.isfinite(reply.took_ms):
                span.attributes["failsoft.model_ms"] = reply.took_ms
        return reply

    def _judged(self, reply: ModelReply, *, texts: int) -> Sequence[Reading]:
        here = _CALL.get()
        if here is None:
            return super()._judged(reply, texts=texts)
        call, span = here
        step = call.begin("failsoft.judge", span.spot.span_id, Kind.INTERNAL)
        try:
            return super()._judged(reply, texts=texts)
        finally:
            call.end(step)


def _say_failure(span: Span, readings: Sequence[Reading | NoReading]) -> None:
    """Of a call that brought nothing; which error it was is in the log of this gateway, in words."""
    if readings and all(isinstance(reading, NoReading) for reading in readings):
        span.fails(str(readings[0].outcome))
