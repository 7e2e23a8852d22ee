"""What is said of an event to whom. Pure."""

from __future__ import annotations

import hashlib
import shlex
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from failsoft.alerts.settings import Form, Target
from failsoft.health.ledger import Event

_LONGEST = 1000
"""Characters of a reason; the ledger has all of it."""


@dataclass(frozen=True, kw_only=True)
class Message:
    """One event, and how many like it were held back before. Its details stay in the ledger: they may quote users."""

    event: Event
    id: str
    """The same for the same event: one that comes twice after a restart can be told."""
    held_back: int = 0

    def body(self, form: Form) -> dict[str, Any]:
        """The JSON to send."""
        return self._slack() if form is Form.SLACK else self._json()

    def _json(self) -> dict[str, Any]:
        event = self.event
        return {
            "id": self.id,
            "at": datetime.fromtimestamp(event.at_s, UTC).isoformat(timespec="seconds"),
            "side": str(event.side),
            "kind": event.kind,
            "subject": event.subject,
            "why": event.why[:_LONGEST],
            "held_back": self.held_back,
            "next": _next_command(event),
        }

    def _slack(self) -> dict[str, Any]:
        event = self.event
        more = f"\n_{self.held_back} more like it were held back_" if self.held_back else ""
        why = _plain(event.why[:_LONGEST])
        text = f"*{_plain(event.kind)}* ({event.side}, {_plain(event.subject)}): {why}{more}"
        return {"text": f"{text}\n`{_plain(_next_command(event))}`"}


@dataclass
class _Told:
    """When somebody was last told of a kind and subject, and what was held back since."""

    at_s: float
    held_back: int = 0
    last: Event | None = None


class Throttle:
    """Which events a target is told of: the wanted ones, and the same of the same subject once in a while.

    Args:
        target: what it wants.
        most: kinds and subjects it remembers; beyond it the one told longest ago is forgotten, and may be told again.
    """

    def __init__(self, target: Target, *, most: int = 1000) -> None:
        self._target = target
        self._most = most
        self._told: dict[tuple[str, str], _Told] = {}

    def message(self, event: Event, *, now_s: float) -> Message | None:
        """The message of the event at this moment of a clock that never goes back; None when nobody is told now."""
        if event.kind not in self._target.kinds or event.side not in self._target.sides:
            return None
        told = self._told.get((event.kind, event.subject))
        if told is not None and now_s - told.at_s < self._target.again_after_s:
            told.held_back, told.last = told.held_back + 1, event
            return None
        return self._tell(event, now_s, held_back=0 if told is None else told.held_back)

    def due(self, *, now_s: float) -> list[Message]:
        """What was held back and is told now that the time is over: the last of its kind, and how many came before."""
        ripe = [
            (told.last, told.held_back - 1)
            for told in self._told.values()
            if told.last is not None and now_s - told.at_s >= self._target.again_after_s
        ]
        return [self._tell(last, now_s, held_back=before) for last, before in ripe]

    def forget(self, event: Event) -> None:
        """The message did not arrive: the next of its kind is told at once."""
        self._told.pop((event.kind, event.subject), None)

    def _tell(self, event: Event, now_s: float, *, held_back: int) -> Message:
        self._told.pop((event.kind, event.subject), None)
        self._told[event.kind, event.subject] = _Told(at_s=now_s)
        if len(self._told) > self._most:
            del self._told[next(iter(self._told))]
        return Message(event=event, id=_identity(event), held_back=held_back)


def _identity(event: Event) -> str:
    return hashlib.sha256(event.to_line()).hexdigest()[:20]


def _next_command(event: Event) -> str:
    return f"failsoft events --since 1h --subject {shlex.quote(event.subject)}"


def _plain(text: str) -> str:
    """No word of an event may become a mention, a link or a format of Slack's."""
    for sign, name in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(sign, name)
    return text.replace("`", "'").replace("*", "").replace("\n", " ")
