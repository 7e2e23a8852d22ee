"""Five incidents as the real gateway, monitor and controller record them. The models are fakes; nothing else is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from failsoft.health.clock import SystemClock
from failsoft.health.ledger import read_ledger
from failsoft.incidents.answers import Totals, read_spans, totals
from failsoft.incidents.finding import Incident, incidents_of
from failsoft.serving.watching.answer_history import FILE_NAME
from tests.console.app_here import TEXTS, AppHere, Mood, app_here
from tests.console.traffic import callers

ODD = ["??? !!! ...", "\u0000\u0001\u0002", "\ufffd\ufffd\ufffd", "( ) [ ] { }"]
_SEEN = 60
"""Answers that users of an incident have got before anybody looks."""
_WAIT_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """What goes wrong, and what the console has to say of it."""

    mood: Mood = Mood.WELL
    odd_texts: bool = False
    clients: int = 4
    limits: dict[str, Any] = field(default_factory=dict)
    why: str
    """Of the answers that are hit why they are not the model's."""
    broke: str
    """The same of those that the model was asked for, and failed at."""
    what: str
    press: str
    section: str
    saw: str


def _fell(mood: Mood, broke: str, what: str, **limits: Any) -> Trouble:
    return Trouble(
        mood=mood,
        limits=limits,
        why="stage",
        broke=broke,
        what=what,
        press="“roll back”",
        section="FailsoftDegraded",
        saw="something else than it",
    )


TROUBLES = {
    "silent-garbage": _fell(Mood.GARBAGE, "weak", "silent garbage: answers in time that are not credible"),
    "hang": _fell(Mood.HANGS, "late", "did not come in time", deadline_ms=600.0),
    "crash-loop": _fell(Mood.CRASHES, "error", "its replicas crash, or raise errors"),
    "overload": Trouble(
        mood=Mood.SLOW,
        clients=16,
        limits={"max_model_queue": 4},
        why="shed",
        broke="shed",
        what="Overload: more is asked than the models manage",
        press="Give it more replicas",
        section="FailsoftOverload",
        saw="from a fallback for want of room",
    ),
    "bad-input-wave": Trouble(
        odd_texts=True,
        why="bad_input",
        broke="bad_input",
        what="wave of bad input",
        press="Tell whoever sends them",
        section="FailsoftBadInputWave",
        saw="nobody could read",
    ),
}


@dataclass(kw_only=True)
class Recorded:
    """An app in the midst of an incident, and under traffic."""

    app: AppHere
    incident: Incident
    hit: int
    """Answers that were not the model's for the incident's reason when this was looked at."""


@contextmanager
def recorded(name: str, home: Path, patch: pytest.MonkeyPatch, **limits: Any) -> Iterator[Recorded]:
    """Let it come to that incident, and go on while the block lasts."""
    trouble = TROUBLES[name]
    with app_here(home, patch, **(trouble.limits | limits)) as app:
        with callers(app.url, TEXTS) as statuses:
            until(lambda: statuses[200] >= _SEEN)
        until(lambda: sum(told(home).sources.values()) >= statuses[200])  # no span is half before and half in it
        app.ail(trouble.mood)
        texts = TEXTS[: len(ODD)] + ODD if trouble.odd_texts else TEXTS
        with callers(app.url, texts, count=trouble.clients):
            until(lambda: bool(found(home)) and hit(home, trouble.why) >= _SEEN)
            yield Recorded(app=app, incident=found(home)[-1], hit=hit(home, trouble.why))


def found(home: Path) -> list[Incident]:
    """Incidents in the ledger."""
    return incidents_of(read_ledger(home / "ledger.jsonl").events)


def hit(home: Path, why: str) -> int:
    """Answers that were not the model's for that reason, as written down."""
    return told(home).whys.get(why, 0)


def told(home: Path) -> Totals:
    """All answers that were written down."""
    return totals(read_spans(home / "serving" / FILE_NAME, after_s=0.0, before_s=1e12))


def until(holds: Any) -> None:
    """Wait until it holds; a machine that is busy may take its time."""
    clock, pause = SystemClock(), threading.Event()
    end_s = clock.monotonic_s() + _WAIT_S
    while not holds():
        assert clock.monotonic_s() < end_s, "it did not come to that"
        pause.wait(0.05)
