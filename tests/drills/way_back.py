"""What the drills of the way back share: traffic that is written down answer by answer, shares, and the timeline."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Self

from failsoft.artifacts.home import Home
from failsoft.demo.answers import Seen, stage_timeline
from failsoft.demo.picture import Mark, draw_incident
from failsoft.demo.report import Table, write_report
from failsoft.health.ledger import Event, read_ledger
from tests.benchmarks.incident_app import DEADLINE_MS, GATEWAYS, WRONG
from tests.benchmarks.incident_traffic import Steady
from tests.benchmarks.load_client import Connection
from tests.conftest import ROOT

OUT = ROOT / "build" / "drill"
MOVES = ("plan_first", "plan_loaded", "stage_move", "plan_change")
TWO_GATEWAYS = {GATEWAYS: "2", DEADLINE_MS: "1500"}
"""How the app of these drills stands; two busy cores must not look like a slow model."""
_KEPT = ("source", "degrade_reason", "stage", "epoch", "confidence", "refused_confidence", "intent")
_BY_SUBJECT = frozenset({"primary", "canary"})


@dataclass
class Recorded(Steady):
    """Steady traffic whose every answer is kept whole enough for the picture."""

    seen: list[Seen] = field(default_factory=list)
    phase: str = "traffic"
    stage: str = ""
    """In the answer of the newest plan seen so far."""

    def __post_init__(self) -> None:
        """Nothing seen yet."""
        self._newest = (-1, False)

    def __enter__(self) -> Self:
        """Begin."""
        super().__enter__()
        return self

    def lost(self) -> list[int]:
        """Statuses of requests that were not answered with 200; 0: no answer at all."""
        return [reply.status for reply in self.replies if reply.status != 200]

    def _answered(self, connection: Connection, status: int, body: bytes) -> None:
        sent_s = self._out[connection]
        super()._answered(connection, status, body)
        said = json.loads(body) if status == 200 else {}
        kept = {name: said.get(name) for name in _KEPT}
        latency_ms = (self.replies[-1].done_s - sent_s) * 1000
        self.seen.append(Seen(sent_s=sent_s, latency_ms=latency_ms, status=status, phase=self.phase, **kept))
        newest = (said.get("epoch", -1), said.get("stage") == "degraded")  # one that trips by itself keeps its epoch
        if newest >= self._newest:
            self._newest, self.stage = newest, said.get("stage", self.stage)


def until(holds: Callable[[], bool], *, within_s: float, what: str) -> float:
    """Seconds until it held; fails when it takes longer."""
    began_s = time.monotonic()
    while not holds():
        assert time.monotonic() - began_s < within_s, f"{what}: not within {within_s:g} s"
        time.sleep(0.02)
    return time.monotonic() - began_s


def by_subject(one: Seen) -> bool:
    """The caller got the subject's own answer."""
    return one.source in _BY_SUBJECT


def asked_subject(one: Seen) -> bool:
    """The subject was to answer, whether or not its answer would do: whom the plan leaves to others is told so."""
    return by_subject(one) or not (one.degrade_reason or "").startswith(f"{one.stage}: ")


def bad(one: Seen) -> bool:
    """The subject's answer was a bad one, whether the caller got it or not."""
    return (by_subject(one) and one.intent == WRONG) or one.refused_confidence is not None


def arrived_s(one: Seen) -> float:
    """When its answer came."""
    return one.sent_s + one.latency_ms / 1000


@dataclass(frozen=True, kw_only=True)
class Share:
    """What part of a stage's answers the subject gave, against what the plan said."""

    stage: str
    planned: float
    answers: int
    by_subject: int
    asked: int
    """Requests that went to the subject, those included whose answer was replaced."""

    @property
    def off(self) -> float:
        """Difference of the share by source."""
        return self.by_subject / self.answers - self.planned

    @property
    def standard_error(self) -> float:
        """Of a share of so many requests that are dealt out by a hash: that of independent draws."""
        return math.sqrt(self.planned * (1.0 - self.planned) / self.answers)

    def row(self) -> tuple[str, ...]:
        """For people."""
        got, asked = self.by_subject / self.answers, self.asked / self.answers
        bound = f"± {3 * self.standard_error:.2%}"
        return (self.stage, f"{self.planned:.0%}", f"{self.answers}", f"{got:.2%}", f"{asked:.2%}", bound)


def shares(seen: Sequence[Seen], planned: Mapping[str, float], *, but: Iterable[tuple[float, float]]) -> list[Share]:
    """Each stage's share over all its visits, without the spans ``but`` in which the subject was broken."""
    spans = list(but)
    well = [one for one in seen if not any(low <= arrived_s(one) <= high for low, high in spans)]
    found = []
    for stage, share in planned.items():
        mine = [one for one in well if one.stage == stage]
        asked, own = sum(map(asked_subject, mine)), sum(map(by_subject, mine))
        found.append(Share(stage=stage, planned=share, answers=len(mine), by_subject=own, asked=asked))
    return found


@dataclass(frozen=True, kw_only=True)
class Fall:
    """How a break was met."""

    stage: str
    calls: int
    """Answers of the subject from the first bad one until the first gateway left it."""
    detection_s: float
    switch_s: float
    """From the first answer of a gateway that had left the subject to the last one of a gateway that had not."""
    let_through: int
    """Bad answers that callers got."""

    def row(self) -> tuple[str, ...]:
        """For people."""
        times = f"{self.calls}", f"{self.detection_s * 1000:.0f} ms", f"{self.switch_s * 1000:.0f} ms"
        return (self.stage, *times, f"{self.let_through}")


def fall(seen: Sequence[Seen], *, broken_s: float, mended_s: float, stage: str) -> Fall:
    """What the answers say of the break at ``broken_s`` in ``stage``; it had been left for good by ``mended_s``."""
    ordered = sorted(seen, key=arrived_s)
    span = [one for one in ordered if broken_s <= arrived_s(one) <= mended_s]
    first_bad_s = next(arrived_s(one) for one in span if bad(one))
    first_left_s = next(arrived_s(one) for one in span if one.stage == "degraded")
    last_old_s = max(arrived_s(one) for one in span if one.stage == stage)
    calls = [one for one in span if first_bad_s <= arrived_s(one) < first_left_s and asked_subject(one)]
    return Fall(
        stage=stage,
        calls=len(calls),
        detection_s=max(0.0, first_left_s - first_bad_s),
        switch_s=max(0.0, last_old_s - first_left_s),
        let_through=sum(by_subject(one) and one.intent == WRONG for one in span),
    )


def plan_events(home: Home) -> list[Event]:
    """Every plan that there was, as the ledger has it."""
    return [event for event in read_ledger(home.ledger).events if event.kind in MOVES]


def stages_in(events: Iterable[Event]) -> list[str]:
    """The stages in their order; changes inside a stage are left out."""
    return [str(event.data["stage"]) for event in events if event.kind in ("plan_first", "stage_move")]


def rests_s(events: Sequence[Event]) -> list[float]:
    """How long each rest was: from the fall to the shadow after it."""
    moves = [event for event in events if event.kind == "stage_move"]
    return [after.at_s - before.at_s for before, after in pairwise(moves) if before.data["stage"] == "degraded"]


def timeline(home: Home, *, from_s: float) -> Table:
    """Everything that the ledger tells of the way, in words."""
    events = [event for event in read_ledger(home.ledger).events if event.at_s >= from_s]
    rows = tuple(
        (f"{event.at_s - from_s:7.2f} s", str(event.data.get("epoch", "")), event.kind, event.why) for event in events
    )
    return Table(title="Timeline, as the ledger has it", columns=("time", "plan", "event", "why"), rows=rows)


def stages_seen(seen: Sequence[Seen]) -> list[str]:
    """The stages in the order in which callers saw them."""
    return [stage for _, stage in stage_timeline(seen)]


def write_page(name: str, seen: Sequence[Seen], marks: Sequence[Mark], tables: Sequence[Table], *, lead: str) -> Path:
    """The picture and the page of a drill, below ``build/drill``."""
    folder = OUT / name
    folder.mkdir(parents=True, exist_ok=True)
    picture = folder / f"{name}.png"
    draw_incident(seen, marks, picture)
    write_report(folder / "report.html", title=f"failsoft drill: {name}", lead=lead, picture=picture, tables=tables)
    return picture
