"""Which incidents there were.

A fall goes from the plan that took a model out of service, or gave it up since it fell, to the one that gave it
everything again; it is judged by the order of the ledger and by epochs, never by comparing clocks. Where no plan comes,
since the controller is away, it is told by the gateways that hold the model back by themselves. A wave of shed calls or
of items that nobody could read goes from the first gateway that is in it to the last one that is no more; a gateway
that has not repeated itself for :data:`SILENT_S` is taken for gone, by wall times, which are for people: nothing acts
on them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

from failsoft.health.json_object import is_count
from failsoft.health.ledger import Event, Side

PLANS = frozenset({"stage_move", "plan_change"})
"""Kinds of events that tell of a plan."""
_OUT, _ENDS = "degraded", frozenset({"serving", "rejected"})
_TRIP = "gateway_tripped"
_LOADED = "plan_loaded"
_TAKES_TRAFFIC = frozenset({"serving", "canary", "ramp_20", "ramp_50"})
_GIVEN_UP = re.compile(r"→ (?:SHADOW|REJECTED): fell(?: \d+ times, now)?: ")
"""A release that fell and does not come back: the older one takes its place, in one slot by way of shadow."""
_ORDERED = re.compile(r"ordered by .*? (?:until restored|for \d+ s): ")
_BESIDE = frozenset(
    {
        _TRIP,
        "caller_apart",
        "controller_absent",
        "controller_duty_failed",
        "fallback_refused",
        "health_not_armed",
        "order_renewed",
        _LOADED,
        "plan_not_stored",
        "planned_fault",
        "release_refused",
        "release_swapped",
        "trial_held",
        "trial_resumed",
        "watch_not_armed",
    }
)
"""Kinds of events that tell about an incident and are no plan."""
_REMEMBERED = 50
_BEGAN, _GOES_ON, _OVER = "began", "goes_on", "over"
SILENT_S = 180.0
"""A gateway in a wave says so about once a minute."""


class Kind(StrEnum):
    """What sort of incident."""

    FALL = "fall"
    """A model was taken out of service."""
    OVERLOAD = "overload"
    """More was asked than the models manage."""
    BAD_INPUT = "bad_input"
    """Many items held nothing that a model could read."""


WAVES = (Kind.OVERLOAD, Kind.BAD_INPUT)
_OF_WAVES = {f"{kind}_{step}": (kind, step) for kind in WAVES for step in (_BEGAN, _GOES_ON, _OVER)}


@dataclass(frozen=True, kw_only=True)
class Incident:
    """One incident, in the events that tell it."""

    epoch: int
    """Of the plan that took the model out of service: the incident's number; 0 for a wave, of which no plan tells."""
    release: str
    """Empty for a wave, which is about none."""
    events: tuple[Event, ...]
    """In the ledger's order; trips of gateways that came just before the plan are the first."""
    is_over: bool
    kind: Kind = Kind.FALL

    @property
    def name(self) -> str:
        """As people and commands call it; a wave is called by the time (UTC) at which it began."""
        if self.kind is Kind.FALL:
            return f"incident-{self.epoch}"
        began = datetime.fromtimestamp(self.began_s, UTC)
        return f"incident-{self.kind.replace('_', '-')}-{began:%Y%m%dT%H%M%SZ}"

    @property
    def began_s(self) -> float:
        """Wall time of its first event."""
        return self.events[0].at_s

    @property
    def ended_s(self) -> float | None:
        """Wall time of the plan that ended it; None while it goes on."""
        return self.events[-1].at_s if self.is_over else None

    @property
    def why(self) -> str:
        """The reason of the plan that began it; of a wave, and where no plan came, what the first gateway saw."""
        plans = (event for event in self.events if event.kind in PLANS and self.kind is Kind.FALL)
        return next(plans, self.events[0]).why

    @property
    def stage(self) -> str:
        """The stage that it has come to; empty for a wave, which moves none."""
        plans = [event for event in self.events if event.kind in PLANS]
        if plans:
            return str(plans[-1].data.get("stage"))
        return _OUT if self.kind is Kind.FALL else ""

    @property
    def falls(self) -> tuple[Event, ...]:
        """By which the model itself fell. An order that holds it back is none, nor the end of one in a rest."""
        if not self.is_planned:
            return self.events[:1]
        return tuple(event for event in self._outs if not _is_ordered(event) and event.data.get("before") != _OUT)

    @property
    def is_planned(self) -> bool:
        """Whether a plan tells of it; else gateways hold the model back alone, and no controller has answered them."""
        return any(event.kind in PLANS for event in self.events)

    @property
    def is_given_up(self) -> bool:
        """Whether the release that fell does not come back by itself."""
        return any(_GIVEN_UP.search(event.why) for event in self._outs[-1:])

    @property
    def order(self) -> str:
        """Of an operator, as it stands in the plan that holds the model back now; empty where none does."""
        moves = [event for event in self.events if event.kind == "stage_move"]
        return moves[-1].why if moves and _stage(moves[-1]) == _OUT and _is_ordered(moves[-1]) else ""

    @property
    def is_by_order(self) -> bool:
        """Whether it began with an operator who held the model back."""
        return any(_is_ordered(event) for event in self._outs[:1])

    @property
    def hold(self) -> str:
        """Of an operator who keeps the model in the stage where it is; empty where none does."""
        told = [event for event in self.events if event.kind in {"trial_held", "trial_resumed"}]
        return told[-1].why if told and told[-1].kind == "trial_held" else ""

    @property
    def relapses(self) -> int:
        """How often the model fell again on its way back."""
        return len([event for event in self.falls if event not in self._outs[:1]]) if self.is_planned else 0

    @property
    def _outs(self) -> list[Event]:
        """Plans that took the model out of service, or kept it out."""
        return [event for event in self.events if _takes_out(event)]

    @property
    def gateways(self) -> tuple[str, ...]:
        """Those that tripped by themselves or were in the wave, in order of their events."""
        return tuple(dict.fromkeys(event.subject for event in self.events if event.kind in {_TRIP, *_OF_WAVES}))


def _is_ordered(event: Event) -> bool:
    return _ORDERED.search(event.why) is not None


def _stage(event: Event) -> str:
    """Of a plan; empty where the line says something else than a word."""
    return stage if isinstance(stage := event.data.get("stage"), str) else ""


def _takes_out(event: Event) -> bool:
    return event.kind == "stage_move" and (_stage(event) == _OUT or _GIVEN_UP.search(event.why) is not None)


def tells(event: Event) -> bool:
    """Whether incidents are found from events of this kind; all others may be left out."""
    return event.side is Side.SERVING and (event.kind in PLANS or event.kind in _BESIDE or event.kind in _OF_WAVES)


def incidents_of(events: Iterable[Event], *, now_s: float | None = None) -> list[Incident]:
    """All incidents of a ledger, by their first events; a fall and a wave of each kind may still go on.

    ``now_s``: wall time; waves whose gateways all fell silent are over then. None: nobody is taken for gone.
    """
    found: list[tuple[int, Incident]] = []
    fall, waves = _Open(), {kind: _Wave(kind) for kind in WAVES}
    for place, event in enumerate(events):
        if not tells(event):
            continue
        if event.kind in _OF_WAVES:
            kind, step = _OF_WAVES[event.kind]
            found += waves[kind].read(event, step, place)
        else:
            found += fall.read(event, place)
    found += fall.rest()
    for wave in waves.values():
        found += wave.rest(now_s)
    return [one for _place, one in sorted(found, key=lambda placed: placed[0])]


def named(incidents: Sequence[Incident], name: str) -> Incident | None:
    """The one of that name; ``incident-last`` is the last one. None when there is none."""
    wanted = f"incident-{name.removeprefix('incident-')}"
    if wanted == "incident-last":
        return incidents[-1] if incidents else None
    return next((one for one in reversed(incidents) if one.name == wanted), None)


@dataclass
class _Open:
    """The incident that is being read, or what may turn out to belong to the next one."""

    epoch: int | None = None
    release: str = ""
    events: list[tuple[int, Event]] = field(default_factory=list)
    plan: Event | None = None
    """The last one."""
    is_answered: bool = True
    """Whether a plan, or a controller that began anew, has come since the last trip of what had traffic."""

    def read(self, event: Event, place: int) -> list[tuple[int, Incident]]:
        self.events.append((place, event))
        before, is_plan = self.plan, event.kind in PLANS
        self._look_for_answers(event)
        if self.epoch is None and not (_takes_out(event) and is_count(event.data.get("epoch"))):
            self._forget(is_plan=is_plan)
            return []
        if self.epoch is None:
            fell = before if before is not None and _stage(event) != _OUT else event
            self.epoch, self.release = event.count("epoch"), str(fell.data.get("release", ""))
        is_end = event.kind == "stage_move" and _stage(event) in _ENDS
        return self._end(is_over=True) if is_end else []

    def _look_for_answers(self, event: Event) -> None:
        if event.kind in PLANS:
            self.plan = event
        if event.kind in PLANS or event.kind == _LOADED:
            self.is_answered = True
        elif event.kind == _TRIP and self.plan is not None and _stage(self.plan) in _TAKES_TRAFFIC:
            self.is_answered = self.is_answered and event.count("epoch") != self.plan.count("epoch", -1)

    def rest(self) -> list[tuple[int, Incident]]:
        if self.epoch is None and self.plan is not None and self.events and not self.is_answered:
            self.epoch, self.release = self.plan.count("epoch") + 1, str(self.plan.data.get("release", ""))
        return [] if self.epoch is None else self._end(is_over=False)

    def _forget(self, *, is_plan: bool) -> None:
        """Before an incident only the trips that no plan has answered yet are kept."""
        if is_plan:
            self.events.clear()
        self.events = [placed for placed in self.events if placed[1].kind == _TRIP][-_REMEMBERED:]

    def _end(self, *, is_over: bool) -> list[tuple[int, Incident]]:
        epoch, events = 0 if self.epoch is None else self.epoch, tuple(event for _place, event in self.events)
        one = Incident(epoch=epoch, release=self.release, events=events, is_over=is_over)
        first = self.events[0][0]
        self.epoch, self.release, self.events = None, "", []
        return [(first, one)]


@dataclass
class _Wave:
    """The wave of one kind that is being read."""

    kind: Kind
    heard_s: dict[str, float] = field(default_factory=dict)
    """Gateways that are in it, and when each last said so."""
    events: list[Event] = field(default_factory=list)
    first: int = 0

    def read(self, event: Event, step: str, place: int) -> list[tuple[int, Incident]]:
        ended = self._without_silent(event.at_s)
        if not self.events:
            if step == _OVER:  # its beginning is in no file any more
                return ended
            self.first = place
        self.events.append(event)
        if step != _OVER:
            self.heard_s[event.subject] = event.at_s
            return ended
        self.heard_s.pop(event.subject, None)
        return ended + ([] if self.heard_s else self._end(is_over=True))

    def rest(self, now_s: float | None) -> list[tuple[int, Incident]]:
        ended = [] if now_s is None else self._without_silent(now_s)
        return ended + (self._end(is_over=False) if self.events else [])

    def _without_silent(self, now_s: float) -> list[tuple[int, Incident]]:
        self.heard_s = {who: at_s for who, at_s in self.heard_s.items() if now_s - at_s <= SILENT_S}
        return self._end(is_over=True) if self.events and not self.heard_s else []

    def _end(self, *, is_over: bool) -> list[tuple[int, Incident]]:
        one = Incident(epoch=0, release="", events=tuple(self.events), is_over=is_over, kind=self.kind)
        self.heard_s, self.events = {}, []
        return [(self.first, one)]
