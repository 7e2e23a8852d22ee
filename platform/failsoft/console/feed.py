"""What the console shows, gathered once a second for all who look: one more who looks costs a connection."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from heapq import merge
from math import inf
from typing import Any

from failsoft.artifacts.home import Home
from failsoft.console.answers_seen import AnswersSeen, Follower
from failsoft.console.gates import Gates
from failsoft.console.words import arms_of, history_of, now_of, releases_of, window_of
from failsoft.errors import FailsoftError
from failsoft.health.clock import Clock
from failsoft.health.ledger import Event, Side, parse_event
from failsoft.incidents.account import account_of
from failsoft.incidents.arrival import Arrivals
from failsoft.incidents.finding import PLANS, WAVES, Incident, incidents_of, tells
from failsoft.incidents.onset import flaws_of
from failsoft.incidents.story import Story
from failsoft.serving.watching.answer_history import FILE_NAME
from failsoft.training.accounting.whereabouts import Whereabouts, all_whereabouts

HISTORY_S, STEP_S = 600.0, 5.0
_EVENTS = 5000
"""Of the ledger, the newest that are held for search and runs; and as many of those that tell of incidents, plans apart
from all others: a wave of many gateways fills hours with its words, and the fall that goes on must stay in sight."""
_LARGE_BYTES = 4096
"""Of an event with a longer line only the details that are numbers, words or nothing are held."""
_FOUND = 200
_ROLLOUT_S, _OLD_S = 1.0, 30.0
"""The controller is waited for so long in one look; what it said so long ago is old, and it is asked again."""
_INCIDENTS = 8
_GOING_ON = 3
"""Incidents that go on are told of at length; a fall and both waves at most, unless a ledger is odd."""
_RUNS = 10
_SETTLED_S = 60.0
"""So long after an incident's end each gateway has written down what it answered in it."""
_INCIDENTS_EVERY_S, _RUNS_EVERY_S = STEP_S, 15.0
"""What came to the disk is read in every look, and made into incidents, chart and runs only so often: that is work, and
this process answers callers. Gateways write down who answered once in five seconds."""


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
        self._plans: deque[tuple[int, Event]] = deque(maxlen=_EVENTS)
        self._beside: deque[tuple[int, Event]] = deque(maxlen=_EVENTS)
        self._held = 0
        self._ledger = Follower(home.ledger, clock)
        self._answers = AnswersSeen(home.serving / FILE_NAME, clock)
        self._gates = Gates(home.releases(clock).root, clock)
        self._wanted: list[str] = []
        self._from_disk: dict[str, Any] = {"incidents": [], "happening": [], "history": []}
        self._old_rows: dict[str, dict[str, Any]] = {}
        self._waves: frozenset[str] = frozenset()
        self._reasons: frozenset[str] = frozenset()
        self._arrivals = Arrivals()
        self._runs_seen: list[tuple[list[str], float | None]] = []
        self._asked: asyncio.Future[dict[str, Any]] | None = None
        self._asked_at_s = 0.0
        self._done_s: dict[str, float] = {}

    async def look(self) -> dict[str, Any]:
        """All that the page shows, as JSON holds it; the slow part is :meth:`read_disk`."""
        status = self._status()
        self._wanted = releases_of(status)
        rollout = await self._asked_controller()
        now_s = self._clock.wall_s()
        return {
            "at_s": now_s,
            "now": now_of(status, rollout, self._waves, self._reasons),
            "arms": arms_of(status, rollout, self._gates.of),
            "history_s": HISTORY_S,
            "window": window_of(status),
            "runs": self._run_rows(now_s),
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
        """What came to ledger and answers; now and then also incidents, chart and runs. Blocks on the disk."""
        for event in map(parse_event, self._ledger.new_lines()):
            if event is not None:
                self._hold(event)
        self._answers.read()
        if self._is_due("incidents", _INCIDENTS_EVERY_S):
            self._tell_incidents()
        if self._is_due("runs", _RUNS_EVERY_S):
            self._runs_seen = self._look_at_runs()
        self._gates.look(self._wanted)

    def _is_due(self, what: str, every_s: float) -> bool:
        """By time and not by looks: whoever comes after a while gets no old news."""
        now_s = self._clock.monotonic_s()
        is_due = not now_s - self._done_s.get(what, -inf) < every_s
        if is_due:
            self._done_s[what] = now_s
        return is_due

    def _tell_incidents(self) -> None:
        now_s = self._clock.wall_s()
        telling = merge(self._plans, self._beside, key=lambda numbered: numbered[0])
        found = incidents_of((event for _number, event in telling), now_s=now_s)
        rows = [self._row_of(one, now_s) for one in reversed(found[-_INCIDENTS:])]
        self._old_rows = {row["name"]: row for row in rows if row["name"] in self._old_rows}
        going_on = [one for one in reversed(found) if not one.is_over][:_GOING_ON]
        self._waves = frozenset(str(one.kind) for one in going_on if one.kind in WAVES)
        self._reasons = frozenset(one.why for one in going_on)
        recent = self._answers.since(now_s - HISTORY_S - STEP_S)
        self._from_disk = {
            "incidents": rows,
            "happening": [self._told(one) for one in going_on],
            "history": history_of(recent, now_s=now_s, history_s=HISTORY_S, step_s=STEP_S),
        }

    def search(self, text: str, side: Side | None) -> list[dict[str, Any]]:
        """The newest events with these words in them, newest first."""
        wanted, found = text.casefold(), list[dict[str, Any]]()
        for event in reversed(self._events.copy()):  # another thread may add to it meanwhile
            line = event.to_line().decode()
            said = line if text.isascii() else json.dumps(json.loads(line), ensure_ascii=False)  # lines are ASCII
            if (side is None or event.side is side) and wanted in said.casefold():
                found.append(json.loads(line))
            if len(found) == _FOUND:
                break
        return found

    def _hold(self, event: Event) -> None:
        self._arrivals.read(event)
        if len(event.to_line()) > _LARGE_BYTES:
            small = {key: value for key, value in event.data.items() if not isinstance(value, list | dict | str)}
            words = {key: value[:200] for key, value in event.data.items() if isinstance(value, str)}
            event = replace(event, data=dict(list((words | small).items())[:20]))
        self._events.append(event)
        if tells(event):
            self._held += 1
            (self._plans if event.kind in PLANS else self._beside).append((self._held, event))

    def _row_of(self, one: Incident, now_s: float) -> dict[str, Any]:
        """What is long over is counted once: the answers of a day are many."""
        row = self._old_rows.get(one.name) or self._as_row(one)
        if one.ended_s is not None and now_s - one.ended_s > _SETTLED_S:
            self._old_rows[one.name] = row
        return row

    def _as_row(self, one: Incident) -> dict[str, Any]:
        story = Story(incident=one, spans=(), now_s=self._clock.wall_s())
        account = account_of(one)
        return {
            "name": one.name,
            "began_s": one.began_s,
            "ended_s": one.ended_s,
            "took": f"{story.lasted_s:.0f} s" if one.is_over else "going on",
            "stage": one.stage or "–",
            "replaced": self._hit(one, story.until_s, account.counts) or "see its report",
            "why": one.why,
        }

    def _onset_s(self, one: Incident) -> float:
        return self._answers.onset_s(one.began_s, flaws_of(one))

    def _hit(self, one: Incident, until_s: float, why: Collection[str] | None) -> str | None:
        return self._answers.replaced(self._onset_s(one), until_s, why=why)

    def _from_when(self, one: Incident) -> str:
        early_s = one.began_s - self._onset_s(one)
        return f"since its first bad ones, {early_s:.0f} s before," if early_s >= 1.0 else "since then"

    def _told(self, one: Incident) -> dict[str, Any]:
        """The four facts of one that goes on: what, since when, how many saw it, what to press."""
        story = Story(incident=one, spans=(), now_s=self._clock.wall_s())
        account = account_of(one, self._answers.flaws(self._onset_s(one), story.until_s))
        saw = self._hit(one, story.until_s, account.counts)
        return {
            "name": one.name,
            "what": account.what,
            "why": f"{one.why}{account.noticed}",
            "release": self._came(one),
            "began_s": one.began_s,
            "lasted_s": round(story.lasted_s),
            "saw": f"{saw} answers {self._from_when(one)} {account.saw}"
            if saw
            else "not known here: no answer since then was written down yet; see its report for how many saw it",
            "press": account.press,
            "section": account.section,
        }

    def _came(self, one: Incident) -> dict[str, Any] | None:
        """Whether the release is new is what its roll back hangs on."""
        came = self._arrivals.of(one)
        if came is None:
            return None
        return {
            "came_s": came.at_s,
            "before_s": round(one.began_s - came.at_s),
            "is_cut": came.is_cut,
            "why": came.why,
        }

    def _look_at_runs(self) -> list[tuple[list[str], float | None]]:
        """Rows without their last column, and the wall time of each run's last word."""
        now_s = self._clock.wall_s()
        looks = all_whereabouts(self._home.runs, list(self._events), now_s=now_s)
        return [(_row_of(look), None if look.age_s is None else now_s - look.age_s) for look in looks[:_RUNS]]

    def _run_rows(self, now_s: float) -> list[list[str]]:
        return [
            [*row, "never" if heard_s is None else f"{now_s - heard_s:.0f} s ago"] for row, heard_s in self._runs_seen
        ]


def _row_of(look: Whereabouts) -> list[str]:
    return [
        look.run,
        look.state,
        f"{look.position} of {look.total}" if look.total else str(look.position),
        "–" if look.loss is None else f"{look.loss:.4g}",
        str(look.refused),
        str(look.restarts),
    ]
