"""What happened to one request, written down while it is on its way. Knows nothing of OpenTelemetry.

A span is a small object and two looks at the clock, so that every request can be recorded, and which of them are worth
keeping is decided once their answers are known. No text of a caller, and no sentence made of one, is put in a span.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextvars import ContextVar, Token
from enum import StrEnum
from types import TracebackType
from typing import NamedTuple, Protocol

from failsoft.health.clock import Clock
from failsoft.serving.tracing.w3c import Parent

MOST_SPANS = 512
"""Of one trace: 64 items with all that may happen to each. What comes beyond is left out and counted on the root."""
Attribute = str | int | float | bool


class Kind(StrEnum):
    """Which side of a call a span is."""

    SERVER = "server"
    CLIENT = "client"
    INTERNAL = "internal"


class Spot(NamedTuple):
    """One span among all of the world."""

    trace_id: int
    span_id: int


class Span:
    """One step. Whoever ends it hands it to its trace."""

    __slots__ = ("attributes", "began_s", "ended_s", "failed", "kind", "links", "name", "parent_id", "spot")

    def __init__(self, name: str, kind: Kind, spot: Spot, parent_id: int, began_s: float) -> None:
        self.name, self.kind, self.spot, self.parent_id = name, kind, spot, parent_id
        self.began_s = self.ended_s = began_s
        self.attributes: dict[str, Attribute] = {}
        self.links: list[Spot] = []
        self.failed = False
        """Whether it counts as an error of this app; attribute ``error.type`` says which."""

    def fails(self, kind: str) -> None:
        """It ended in an error of this kind, a word."""
        self.failed, self.attributes["error.type"] = True, kind


class Bundle(NamedTuple):
    """Spans that go to the collector together."""

    spans: Sequence[Span]
    wall_offset_s: float
    """What makes a wall time of their monotonic ones."""


class Keeper(Protocol):
    """Decides what is kept, and takes it."""

    def admit_sampled(self) -> bool:
        """Whether one more trace may be kept that was drawn, by this gateway or by its caller."""
        ...

    def admit(self, *, surely: bool) -> bool:
        """Whether one more may be kept for what became of it; ``surely``: it may, however many there are."""
        ...

    def take(self, bundle: Bundle) -> None:
        """Spans for the collector; returns at once."""
        ...

    def refused(self, spans: int) -> None:
        """So many spans were worth keeping, and too many others were before them."""
        ...


class Recorder:
    """Spans of one trace while they are made.

    Args:
        clock: measures.
        rng: makes ids.
        trace_id: of all its spans.
    """

    def __init__(self, clock: Clock, rng: random.Random, trace_id: int) -> None:
        self._clock, self._rng, self.trace_id = clock, rng, trace_id
        self._offset_s = clock.wall_s() - clock.monotonic_s()
        self.spans: list[Span] = []
        self.left_out = 0

    def begin(self, name: str, parent_id: int = 0, kind: Kind = Kind.INTERNAL) -> Span:
        """A span that begins now; ``parent_id`` 0: it has no parent."""
        spot = Spot(self.trace_id, self._rng.getrandbits(64) or 1)
        return Span(name, kind, spot, parent_id, self._clock.monotonic_s())

    def end(self, span: Span) -> None:
        """It ended now."""
        span.ended_s = self._clock.monotonic_s()
        if len(self.spans) < MOST_SPANS:
            self.spans.append(span)
        else:
            self.left_out += 1

    def bundle(self) -> Bundle:
        """All that ended so far."""
        return Bundle(tuple(self.spans), self._offset_s)


class SharedCall(Recorder):
    """One call of a model, which may carry the items of several requests. Kept when a trace of one of them is.

    It may end before or after them: a request does not wait longer than it has time.
    """

    def __init__(self, clock: Clock, rng: random.Random, trace_id: int, keeper: Keeper) -> None:
        super().__init__(clock, rng, trace_id)
        self._keeper, self._wanted, self._over = keeper, False, False

    def wanted(self) -> None:
        """A trace that is linked to this one is kept."""
        if not self._wanted:
            self._wanted = True
            self._hand_over()

    def over(self) -> None:
        """Nothing more comes."""
        self._over = True
        self._hand_over()

    def _hand_over(self) -> None:
        if self._wanted and self._over:
            self._keeper.take(self.bundle())


class Trace(Recorder):
    """One request's spans, kept or thrown away as a whole when it has ended.

    Args:
        keeper: decides.
        clock: measures.
        rng: makes ids.
        trace_id: the caller's, or a new one.
        parent: the caller's own span, if it named one.
        sampled: it is to be kept whatever becomes of it.
    """

    def __init__(
        self, keeper: Keeper, clock: Clock, rng: random.Random, trace_id: int, *, parent: Parent | None, sampled: bool
    ) -> None:
        super().__init__(clock, rng, trace_id)
        self._keeper, self._calls = keeper, list[SharedCall]()
        self.root = self.begin("", 0 if parent is None else parent.span_id, Kind.SERVER)
        self.kept, self._refused, self._asked = False, False, False
        if sampled:
            self.kept = keeper.admit_sampled()
            self._refused = not self.kept

    def keep(self, *, surely: bool = False) -> None:
        """It is worth keeping; asked once, unless somebody says that it is to be kept in any case."""
        if not self.kept and (surely or not self._asked):
            self._asked, self.kept = True, self._keeper.admit(surely=surely)
            self._refused = not self.kept

    def shares(self, call: SharedCall) -> None:
        """One of its steps was made in a call for several."""
        self._calls.append(call)

    def over(self) -> None:
        """The request has ended: hand the spans over, or throw them away."""
        if self.left_out:
            self.root.attributes["failsoft.spans_left_out"] = self.left_out
        self.root.ended_s = self._clock.monotonic_s()
        self.spans.append(self.root)
        if self.kept:
            self._keeper.take(self.bundle())
            for call in self._calls:
                call.wanted()
        elif self._refused:
            self._keeper.refused(len(self.spans))


class Here(NamedTuple):
    """Where in which trace the running task is."""

    trace: Trace
    span: Span


HERE: ContextVar[Here | None] = ContextVar("failsoft_here", default=None)


def kept_trace_id(*, surely: bool = False) -> str:
    """Id of the running request's trace, 32 hexadecimal digits, if that is kept; else empty.

    Args:
        surely: keep it from now on, however many are kept already: something is told in the ledger that began here.
    """
    here = HERE.get()
    if here is None:
        return ""
    if surely:
        here.trace.keep(surely=True)
    return f"{here.trace.trace_id:032x}" if here.trace.kept else ""


class Step:
    """``with Step("name") as span:`` — a child of where the running task is. Outside of any trace: recorded nowhere."""

    __slots__ = ("_here", "_kind", "_name", "_token")

    def __init__(self, name: str, kind: Kind = Kind.INTERNAL) -> None:
        self._name, self._kind = name, kind
        self._here: Here | None = None
        self._token: Token[Here | None] | None = None

    def __enter__(self) -> Span:
        """Begin."""
        outer = HERE.get()
        if outer is None:
            return Span(self._name, self._kind, Spot(0, 0), 0, 0.0)
        span = outer.trace.begin(self._name, outer.span.spot.span_id, self._kind)
        self._here = Here(outer.trace, span)
        self._token = HERE.set(self._here)
        return span

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End; an error passes through, and its class stays."""
        if self._here is None or self._token is None:
            return
        HERE.reset(self._token)
        if kind is not None:
            self._here.span.fails(kind.__name__)
        self._here.trace.end(self._here.span)
