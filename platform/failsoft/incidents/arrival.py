"""When a release came into the plan: who looks at its fall asks first whether it is new.

By the ledger's order and by epochs; the wall times in it are for people.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from failsoft.health.ledger import Event, Side
from failsoft.incidents.finding import PLANS, Incident

_FIRST, _LOADED = "plan_first", "plan_loaded"
_REMEMBERED = 100


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """Of one release."""

    release: str
    epoch: int
    at_s: float
    """Wall time of the first plan with it as its subject, of those that were read one after the other."""
    why: str
    is_cut: bool
    """It was there already when reading began, and may have come earlier."""


class Arrivals:
    """Read from the events of a ledger, in their order."""

    def __init__(self) -> None:
        self._known: deque[Arrival] = deque(maxlen=_REMEMBERED)

    def read(self, event: Event) -> None:
        """The next one, of whatever kind."""
        release = event.data.get("release")
        if (
            event.side is not Side.SERVING
            or event.kind not in {*PLANS, _FIRST, _LOADED}
            or not isinstance(release, str)
        ):
            return
        if self._known and self._known[-1].release == release:
            return
        is_cut = not self._known and event.kind != _FIRST
        self._known.append(
            Arrival(release=release, epoch=event.count("epoch"), at_s=event.at_s, why=event.why, is_cut=is_cut)
        )

    def of(self, incident: Incident) -> Arrival | None:
        """How the incident's release came; None for a wave, which is about none, and where that is not known."""
        came = (one for one in reversed(self._known) if one.release == incident.release)
        return next((one for one in came if incident.release and one.epoch < incident.epoch), None)
