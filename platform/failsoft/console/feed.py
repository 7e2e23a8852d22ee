"""What the console shows, gathered once a second for all who look: one more who looks costs a connection."""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeGuard

from failsoft.artifacts.home import Home
from failsoft.console.words import arms_of, history_of, now_of
from failsoft.errors import FailsoftError
from failsoft.health.clock import Clock
from failsoft.health.json_object import is_finite, json_object
from failsoft.health.ledger import Event, Side, parse_event
from failsoft.health.ledger_files import Position, Tail, archives
from failsoft.incidents.answers import read_spans
from failsoft.incidents.finding import incidents_of
from failsoft.incidents.story import Story, clock, tell
from failsoft.serving.watching.answer_history import FILE_NAME, VERSION
from failsoft.training.accounting.whereabouts import all_whereabouts

_log = logging.getLogger(__name__)
HISTORY_S, STEP_S = 600.0, 5.0
_EVENTS = 5000
"""Of the ledger, the newest that are held for search, incidents and runs."""
_FOUND = 200
_INCIDENTS = 8
_RUNS = 10
_DISK_EVERY = 5
"""The disk is looked at in every fifth look."""


class Feed:
    """Gathers.

    Args:
        home: whose ledger, runs and answers are shown.
        status: of this gateway.
        rollout: of the controller.
        clock: of the process.
    """

    def __init__(
        self,
        home: Home,
        *,
        status: Callable[[], dict[str, Any]],
        rollout: Callable[[], Awaitable[dict[str, Any]]],
        clock: Clock,
    ) -> None:
        self._home = home
        self._status = status
        self._rollout = rollout
        self._clock = clock
        self._events: deque[Event] = deque(maxlen=_EVENTS)
        self._spans: deque[dict[str, Any]] = deque(maxlen=4096)
        self._ledger = Tail(home.ledger, after=_late(home))
        self._answers = Tail(home.serving / FILE_NAME, after=Position(file=len(archives(home.serving / FILE_NAME))))
        self._from_disk: dict[str, Any] = {"incidents": [], "runs": [], "since": ""}
        self._looks = 0

    async def look(self) -> dict[str, Any]:
        """All that the page shows, as JSON holds it; the slow part is :meth:`read_disk`."""
        status = self._status()
        try:
            rollout = await self._rollout()
        except FailsoftError as error:
            rollout = {"error": str(error)}
        now_s = self._clock.wall_s()
        return {
            "at_s": now_s,
            "now": now_of(status, rollout),
            "arms": arms_of(status, rollout),
            "history": history_of(self._spans, now_s=now_s, history_s=HISTORY_S, step_s=STEP_S),
            "history_s": HISTORY_S,
        } | self._from_disk

    def read_disk(self) -> None:
        """What came to ledger and answers; every fifth time also incidents and runs. Blocks on the disk."""
        self._events.extend(event for event in map(parse_event, self._ledger.new_lines()) if event is not None)
        self._spans.extend(span for span in map(json_object, self._answers.new_lines()) if _is_span(span))
        if self._looks % _DISK_EVERY == 0:
            told = self._stories()
            incidents = [_as_row(story) for story in told]
            self._from_disk = {"incidents": incidents, "runs": self._runs(), "since": _since(told)}
        self._looks += 1
        self._ledger.close()  # nobody may look again for hours; it goes on from where it is
        self._answers.close()

    def search(self, text: str, side: Side | None) -> list[dict[str, Any]]:
        """The newest events with these words in them, newest first."""
        wanted, found = text.casefold(), list[dict[str, Any]]()
        for event in reversed(self._events):
            line = event.to_line().decode()
            if (side is None or event.side is side) and wanted in line.casefold():
                found.append(json.loads(line))
            if len(found) == _FOUND:
                break
        return found

    def _stories(self) -> list[Story]:
        """The last incidents, newest first."""
        now_s, told = self._clock.wall_s(), list[Story]()
        for one in reversed(incidents_of(list(self._events))[-_INCIDENTS:]):
            until_s = now_s if one.ended_s is None else one.ended_s
            spans = read_spans(self._home.serving / FILE_NAME, after_s=one.began_s, before_s=until_s)
            told.append(tell(one, spans, now_s=now_s))
        return told

    def _runs(self) -> list[list[str]]:
        looks = all_whereabouts(self._home.runs, list(self._events), now_s=self._clock.wall_s())
        return [
            [
                look.run,
                look.state,
                f"{look.position} of {look.total}" if look.total else str(look.position),
                "–" if look.loss is None else f"{look.loss:.4g}",
                str(look.refused),
                str(look.restarts),
                "never" if look.age_s is None else f"{look.age_s:.0f} s ago",
            ]
            for look in looks[-_RUNS:]
        ]


def _as_row(story: Story) -> dict[str, Any]:
    one, during = story.incident, story.phases()["during"]
    return {
        "name": one.name,
        "began_s": one.began_s,
        "took": f"{story.lasted_s:.0f} s" if one.is_over else "going on",
        "stage": one.stage,
        "replaced": f"{during.replaced:,} of {during.answers:,}",
        "why": one.why,
    }


def _since(told: Sequence[Story]) -> str:
    """How long it has been going on, and how many users saw it; empty when nothing goes on."""
    if not told or told[0].incident.is_over:
        return ""
    story, during = told[0], told[0].phases()["during"]
    saw = f"{during.replaced:,} of {during.answers:,} answers since then came from something else than it"
    return f"{story.incident.name} since {clock(story.incident.began_s)} ({story.lasted_s:.0f} s): {saw}."


def _late(home: Home) -> Position:
    """The last full file of the ledger and the one that is written: enough for what is held."""
    return Position(file=max(0, len(archives(home.ledger))))


def _is_span(body: dict[str, Any] | None) -> TypeGuard[dict[str, Any]]:
    """Whether a line of the history holds what the chart is drawn from."""
    if body is None or body.get("v") != VERSION or not is_finite(body.get("at_s")):
        return False
    answers = body.get("answers")
    return isinstance(answers, dict) and all(
        isinstance(whys, dict) and all(is_finite(count) for count in whys.values()) for whys in answers.values()
    )
