"""What the console shows, gathered once a second for all who look: one more who looks costs a connection."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from failsoft.artifacts.home import Home
from failsoft.console.answers_seen import AnswersSeen, Follower
from failsoft.console.words import arms_of, history_of, now_of
from failsoft.errors import FailsoftError
from failsoft.health.clock import Clock
from failsoft.health.ledger import Event, Side, parse_event
from failsoft.incidents.account import account_of
from failsoft.incidents.finding import WAVES, Incident, incidents_of, tells
from failsoft.incidents.story import Story
from failsoft.serving.watching.answer_history import FILE_NAME
from failsoft.training.accounting.whereabouts import all_whereabouts

HISTORY_S, STEP_S = 600.0, 5.0
_EVENTS = 5000
"""Of the ledger, the newest that are held for search and runs; and as many of those that tell of incidents."""
_LARGE_BYTES = 4096
"""Of an event with a longer line only the details that are numbers, words or nothing are held."""
_FOUND = 200
_ROLLOUT_S, _OLD_S = 1.0, 30.0
"""The controller is waited for so long in one look; what it said so long ago is old, and it is asked again."""
_INCIDENTS = 8
_GOING_ON = 3
"""Incidents that go on are told of at length; a fall and both waves at most, unless a ledger is odd."""
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
        self._telling: deque[Event] = deque(maxlen=_EVENTS)
        self._ledger = Follower(home.ledger, clock)
        self._answers = AnswersSeen(home.serving / FILE_NAME, clock)
        self._from_disk: dict[str, Any] = {"incidents": [], "runs": [], "happening": []}
        self._waves: frozenset[str] = frozenset()
        self._recent: list[dict[str, Any]] = []
        self._asked: asyncio.Future[dict[str, Any]] | None = None
        self._asked_at_s = 0.0
        self._looks = 0

    async def look(self) -> dict[str, Any]:
        """All that the page shows, as JSON holds it; the slow part is :meth:`read_disk`."""
        status = self._status()
        rollout = await self._asked_controller()
        now_s = self._clock.wall_s()
        return {
            "at_s": now_s,
            "now": now_of(status, rollout, self._waves),
            "arms": arms_of(status, rollout),
            "history": history_of(self._recent, now_s=now_s, history_s=HISTORY_S, step_s=STEP_S),
            "history_s": HISTORY_S,
        } | self._from_disk

    async def _asked_controller(self) -> dict[str, Any]:
        """What it says; one that does not answer keeps nobody from seeing the rest, and is asked once at a time."""
        now_s = self._clock.monotonic_s()
        if self._asked is None or now_s - self._asked_at_s > _OLD_S:
            self._asked, self._asked_at_s = asyncio.ensure_future(self._rollout()), now_s
        asked = self._asked
        done, _ = await asyncio.wait({asked}, timeout=_ROLLOUT_S)
        if not done:
            return {"error": "it has not answered yet"}
        self._asked = None
        try:
            return asked.result()
        except FailsoftError as error:
            return {"error": str(error)}

    def read_disk(self) -> None:
        """What came to ledger and answers; every fifth time also incidents and runs. Blocks on the disk."""
        for event in map(parse_event, self._ledger.new_lines()):
            if event is not None:
                self._hold(event)
        self._answers.read()
        self._recent = self._answers.since(self._clock.wall_s() - HISTORY_S - STEP_S)
        if self._looks % _DISK_EVERY == 0:
            found = incidents_of(list(self._telling), now_s=self._clock.wall_s())
            rows = [self._as_row(one) for one in reversed(found[-_INCIDENTS:])]
            going_on = [one for one in reversed(found) if not one.is_over][:_GOING_ON]
            happening = [self._told(one) for one in going_on]
            self._waves = frozenset(str(one.kind) for one in going_on if one.kind in WAVES)
            self._from_disk = {"incidents": rows, "runs": self._runs(), "happening": happening}
        self._looks += 1

    def search(self, text: str, side: Side | None) -> list[dict[str, Any]]:
        """The newest events with these words in them, newest first."""
        wanted, found = text.casefold(), list[dict[str, Any]]()
        for event in reversed(self._events.copy()):  # another thread may add to it meanwhile
            line = event.to_line().decode()
            if (side is None or event.side is side) and wanted in line.casefold():
                found.append(json.loads(line))
            if len(found) == _FOUND:
                break
        return found

    def _hold(self, event: Event) -> None:
        if len(event.to_line()) > _LARGE_BYTES:
            small = {key: value for key, value in event.data.items() if not isinstance(value, list | dict | str)}
            words = {key: value[:200] for key, value in event.data.items() if isinstance(value, str)}
            event = replace(event, data=dict(list((words | small).items())[:20]))
        self._events.append(event)
        if tells(event):
            self._telling.append(event)

    def _as_row(self, one: Incident) -> dict[str, Any]:
        story = Story(incident=one, spans=(), now_s=self._clock.wall_s())
        account = account_of(one)
        return {
            "name": one.name,
            "began_s": one.began_s,
            "took": f"{story.lasted_s:.0f} s" if one.is_over else "going on",
            "stage": one.stage or "–",
            "replaced": self._answers.replaced(one.began_s, story.until_s, why=account.counts) or "see its report",
            "why": one.why,
        }

    def _told(self, one: Incident) -> dict[str, Any]:
        """The four facts of one that goes on: what, since when, how many saw it, what to press."""
        story = Story(incident=one, spans=(), now_s=self._clock.wall_s())
        account = account_of(one, self._answers.flaws(one.began_s, story.until_s))
        saw = self._answers.replaced(one.began_s, story.until_s, why=account.counts)
        return {
            "name": one.name,
            "what": account.what,
            "why": one.why,
            "began_s": one.began_s,
            "lasted_s": round(story.lasted_s),
            "saw": f"{saw} answers since then {account.saw}" if saw else "see its report for how many saw it",
            "press": account.press,
            "section": account.section,
        }

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
            for look in looks[:_RUNS]
        ]
