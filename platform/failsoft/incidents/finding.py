"""Which incidents there were: from the plan that took a model out of service to the one that gave it everything again.

Judged by the order of the ledger and by epochs, never by comparing clocks; times are for people.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from failsoft.health.json_object import is_count
from failsoft.health.ledger import Event, Side

_PLANS = frozenset({"stage_move", "plan_change"})
_OUT, _ENDS = "degraded", frozenset({"serving", "rejected"})
_TRIP = "gateway_tripped"
_BESIDE = frozenset(
    {
        _TRIP,
        "caller_apart",
        "controller_absent",
        "controller_duty_failed",
        "fallback_refused",
        "health_not_armed",
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


@dataclass(frozen=True, kw_only=True)
class Incident:
    """One incident, in the events that tell it."""

    epoch: int
    """Of the plan that took the model out of service: the incident's number."""
    release: str
    events: tuple[Event, ...]
    """In the ledger's order; trips of gateways that came just before the plan are the first."""
    is_over: bool

    @property
    def name(self) -> str:
        """As people and commands call it."""
        return f"incident-{self.epoch}"

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
        """The reason of the plan that began it."""
        return next(event.why for event in self.events if event.kind in _PLANS)

    @property
    def stage(self) -> str:
        """The stage that it has come to."""
        return str([event for event in self.events if event.kind in _PLANS][-1].data.get("stage"))

    @property
    def relapses(self) -> int:
        """How often the model fell again on its way back."""
        falls = [event for event in self.events if event.kind == "stage_move" and event.data.get("stage") == _OUT]
        return max(0, len(falls) - 1)

    @property
    def gateways(self) -> tuple[str, ...]:
        """Those that tripped by themselves, in order of their events."""
        return tuple(dict.fromkeys(event.subject for event in self.events if event.kind == _TRIP))


def tells(event: Event) -> bool:
    """Whether incidents are found from events of this kind; all others may be left out."""
    return event.side is Side.SERVING and (event.kind in _PLANS or event.kind in _BESIDE)


def incidents_of(events: Iterable[Event]) -> list[Incident]:
    """All incidents of a ledger, oldest first; the last one may still go on."""
    found: list[Incident] = []
    book = _Open()
    for event in events:
        if tells(event):
            found += book.read(event)
    return found + book.rest()


def named(incidents: Sequence[Incident], name: str) -> Incident | None:
    """The one of that name; ``incident-last`` is the last one. None when there is none."""
    number = name.removeprefix("incident-")
    if number == "last":
        return incidents[-1] if incidents else None
    return next((one for one in reversed(incidents) if str(one.epoch) == number), None)


@dataclass
class _Open:
    """The incident that is being read, or what may turn out to belong to the next one."""

    epoch: int | None = None
    release: str = ""
    events: list[Event] = field(default_factory=list)

    def read(self, event: Event) -> list[Incident]:
        self.events.append(event)
        stage: Any = event.data.get("stage") if event.kind in _PLANS else None
        if self.epoch is None:
            if event.kind == "stage_move" and stage == _OUT and is_count(event.data.get("epoch")):
                self.epoch, self.release = event.count("epoch"), str(event.data.get("release", ""))
            else:
                self._forget(is_plan=event.kind in _PLANS)
            return []
        return self._end(is_over=True) if event.kind == "stage_move" and stage in _ENDS else []

    def rest(self) -> list[Incident]:
        return [] if self.epoch is None else self._end(is_over=False)

    def _forget(self, *, is_plan: bool) -> None:
        """Before an incident only the trips that no plan has answered yet are kept."""
        if is_plan:
            self.events.clear()
        self.events = [event for event in self.events if event.kind == _TRIP][-_REMEMBERED:]

    def _end(self, *, is_over: bool) -> list[Incident]:
        epoch = 0 if self.epoch is None else self.epoch
        one = Incident(epoch=epoch, release=self.release, events=tuple(self.events), is_over=is_over)
        self.epoch, self.release, self.events = None, "", []
        return [one]
