"""The whole way back under 200 requests a second, with a second fault at 20 %: nobody unanswered, every share right."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise

import pytest

from failsoft.demo.picture import Mark
from failsoft.demo.report import Table
from failsoft.health.faults import FaultKind
from failsoft.health.ledger import Event, read_ledger
from failsoft.ingress import LOOPBACK, Ingress
from tests.benchmarks.gateway_contenders import Standing, releases, standing
from tests.benchmarks.incident_app import share_file
from tests.drills.way_back import (
    TWO_GATEWAYS,
    Fall,
    Recorded,
    Share,
    fall,
    plan_events,
    rests_s,
    shares,
    stages_in,
    stages_seen,
    timeline,
    until,
    write_page,
)

pytestmark = pytest.mark.drill
RATE_HZ = 200.0
STAGES = """
[drill]
mirror_share = 0.2

[drill.shadow]
min_time_s = 4.0

[drill.canary]
min_time_s = 22.0

[drill.ramp_20]
min_time_s = 20.0

[drill.ramp_50]
min_time_s = 20.0
"""
"""Long enough that a share can be told from its neighbours: 4,400 answers at 5 % have a standard error of 0.33 %."""
PLANNED = {"degraded": 0.0, "shadow": 0.0, "canary": 0.05, "ramp_20": 0.2, "ramp_50": 0.5, "serving": 1.0}
UP_TO_20 = ["degraded", "shadow", "canary", "ramp_20"]
WAY = ["serving", *UP_TO_20, *UP_TO_20, "ramp_50", "serving"]


@pytest.fixture
def app() -> Iterator[Standing]:
    with releases() as published, standing("incident", Ingress.FAST, published, **TWO_GATEWAYS) as running:
        (running.home.root / "stages.toml").write_text(STAGES, "utf-8")
        until(lambda: "stages_changed" in kinds(running), within_s=20.0, what="the drill's own stages")
        yield running


def kinds(app: Standing) -> list[str]:
    return [event.kind for event in read_ledger(app.home.ledger).events]


def break_and_mend(app: Standing, traffic: Recorded, marks: list[Mark]) -> tuple[float, float]:
    """Break the weights in memory until every gateway has left them; when that was."""
    sign = app.home.faults / FaultKind.BROKEN_WEIGHTS
    sign.parent.mkdir(parents=True, exist_ok=True)
    share_file(app.home.root).write_text("1.0", "utf-8")
    broken_s = time.monotonic()
    sign.touch()
    marks.append(Mark(at_s=broken_s, text=f"weights broken at {traffic.stage.upper()}"))
    until(lambda: traffic.stage == "degraded", within_s=30.0, what="the fall")
    sign.unlink()
    time.sleep(1.0)  # answers under the plan before are still on their way
    return broken_s, time.monotonic()


def test_two_faults_on_the_way_to_100_percent_cost_no_answer_and_every_share_is_as_planned(
    app: Standing, capsys: pytest.CaptureFixture[str]
) -> None:
    marks: list[Mark] = []
    began_s = time.time()
    with Recorded(LOOPBACK, app.port, RATE_HZ) as traffic:
        until(lambda: len(traffic.seen) > 3 * RATE_HZ, within_s=30.0, what="warm traffic")
        first = break_and_mend(app, traffic, marks)
        until(lambda: traffic.stage == "ramp_20", within_s=120.0, what="the way to 20 %")
        until(lambda: sum(one.stage == "ramp_20" for one in traffic.seen) > 3000, within_s=60.0, what="20 %")
        second = break_and_mend(app, traffic, marks)
        until(lambda: traffic.stage == "serving", within_s=200.0, what="the way to 100 %")
        marks.append(Mark(at_s=time.monotonic(), text="back at 100 %"))
        time.sleep(4.0)
    seen, events = traffic.seen, plan_events(app.home)
    falls = [
        fall(seen, broken_s=span[0], mended_s=span[1], stage=at)
        for span, at in ((first, "serving"), (second, "ramp_20"))
    ]
    found = shares(seen, PLANNED, but=[first, second])
    with capsys.disabled():
        report(traffic, marks, falls=falls, found=found, way=timeline(app.home, from_s=began_s))
    assert traffic.lost() == []
    assert stages_seen(seen) == WAY
    check_timeline(events)
    for one in falls:
        assert one.calls < 60
        assert one.switch_s < 1.0
    for part in found:
        assert part.answers > 200
        assert abs(part.off) <= 3 * part.standard_error, part


def report(traffic: Recorded, marks: list[Mark], *, falls: list[Fall], found: list[Share], way: Table) -> None:
    """Print it, and write the page and the picture."""
    columns = ("in stage", "calls", "noticed", "left by all", "let through")
    fell = Table(title="Falls", columns=columns, rows=tuple(one.row() for one in falls))
    parts = ("stage", "plan", "answers", "by source", "asked", "3 SE")
    shared = Table(title="Shares", columns=parts, rows=tuple(one.row() for one in found))
    lead = f"{RATE_HZ:.0f} requests a second, 2 gateways; {len(traffic.seen)} answers, {len(traffic.lost())} lost"
    picture = write_page("way_back", traffic.seen, marks, [fell, shared, way], lead=lead)
    tables = ("\n".join(" | ".join(row) for row in (one.columns, *one.rows)) for one in (fell, shared, way))
    print("", lead, *tables, picture, sep="\n")


def check_timeline(events: list[Event]) -> None:
    """Whole, in order, each with its reason; and the second rest is longer."""
    assert stages_in(events) == WAY
    assert [event.data["epoch"] for event in events] == list(range(1, len(events) + 1))
    assert all(before.at_s <= after.at_s for before, after in pairwise(events))
    assert all(event.why for event in events)
    rests = rests_s(events)
    assert rests[1] > 1.5 * rests[0]
