"""Which requests are traced, and what becomes of their spans."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from failsoft.health.clock import Clock
from failsoft.serving.tracing.config import TraceConfig
from failsoft.serving.tracing.outbox import Outbox
from failsoft.serving.tracing.spans import Bundle, Here, Kind, SharedCall, Span, Trace
from failsoft.serving.tracing.w3c import Parent

_LOW_64 = (1 << 64) - 1


class Allowance:
    """So many a second, and as many at once after a quiet second."""

    def __init__(self, per_s: float, clock: Clock) -> None:
        self._per_s, self._most, self._clock = per_s, max(1.0, per_s), clock
        self._left, self._seen_s = self._most, clock.monotonic_s()

    def take(self) -> bool:
        """Whether there is one left, which is taken."""
        now_s = self._clock.monotonic_s()
        self._left = min(self._most, self._left + (now_s - self._seen_s) * self._per_s)
        self._seen_s = now_s
        if not self._left >= 1.0:
            return False
        self._left -= 1.0
        return True


class Tracer:
    """Begins the traces of one gateway replica and takes what is kept of them. For one event loop.

    Args:
        config: how many are kept.
        outbox: sends spans.
        clock: measures.
        rng: makes ids; those of two gateways must differ.
    """

    def __init__(self, config: TraceConfig, outbox: Outbox, *, clock: Clock, rng: random.Random) -> None:
        self._config, self._outbox, self._clock, self._rng = config, outbox, clock, rng
        self._drawn, self._replaced = (Allowance(config.max_kept_per_s, clock) for _ in range(2))
        self._over_limit = 0

    def begin(self, parent: Parent | None) -> Trace | None:
        """The trace of a request that has come, in the trace of its caller if it named one; None: it is not traced."""
        trace_id = self._new_id() if parent is None else parent.trace_id
        sampled = (trace_id & _LOW_64) < self._config.below if parent is None else parent.sampled
        if not (sampled or self._config.keep_degraded):
            return None
        return Trace(self, self._clock, self._rng, trace_id, parent=parent, sampled=sampled)

    def replaced(self, trace: Trace, *, surely: bool = False) -> None:
        """The request failed, or the model in service did not answer it."""
        if self._config.keep_degraded:
            trace.keep(surely=surely)

    def call(self, name: str, askers: Sequence[Here]) -> tuple[SharedCall, Span]:
        """One call for some requests: in the trace of the only one, or in one of its own, linked to each of theirs."""
        alone = len(askers) == 1
        trace_id = askers[0].trace.trace_id if alone else self._new_id()
        call = SharedCall(self._clock, self._rng, trace_id, self)
        span = call.begin(name, askers[0].span.spot.span_id if alone else 0, Kind.CLIENT)
        for asker in askers:
            asker.trace.shares(call)
            if not alone:
                span.links.append(asker.span.spot)
                asker.span.links.append(span.spot)
        return call, span

    def admit_sampled(self) -> bool:
        """See :class:`failsoft.serving.tracing.spans.Keeper`. Callers may claim to be sampled as often as they like."""
        return self._drawn.take()

    def admit(self, *, surely: bool) -> bool:
        """See :class:`failsoft.serving.tracing.spans.Keeper`. What failed has an allowance that nobody else takes."""
        return self._replaced.take() or surely

    def take(self, bundle: Bundle) -> None:
        """See :class:`failsoft.serving.tracing.spans.Keeper`."""
        self._outbox.offer(bundle)

    def refused(self, spans: int) -> None:
        """See :class:`failsoft.serving.tracing.spans.Keeper`."""
        self._over_limit += spans

    def status(self) -> Mapping[str, int]:
        """Spans by what became of them."""
        return self._outbox.counts() | {"over_limit": self._over_limit}

    def _new_id(self) -> int:
        return self._rng.getrandbits(128) or 1
