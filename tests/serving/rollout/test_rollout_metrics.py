"""What the controller exports: its status in numbers, and the gates of the plan's subject."""

from __future__ import annotations

import asyncio
import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from failsoft.artifacts.bundle import Role
from failsoft.artifacts.home import Home
from failsoft.health import serving_metrics as table
from failsoft.health.clock import ManualClock, SystemClock
from failsoft.health.metric_book import MetricBook, Sink
from failsoft.serving.plan.plan import Colour, Stage
from failsoft.serving.rollout.control import Controller, ControllerConfig
from failsoft.serving.rollout.gate_record import gate_results, remembered
from failsoft.serving.rollout.rollout_metrics import RolloutMetrics
from tests.health.recorded_sink import RecordedSink, drained
from tests.serving.fakes import plan

pytestmark = pytest.mark.anyio

GATES = {"skew: word ids": "passed", "accuracy": "failed", "size": "waived"}


def status(**other: Any) -> dict[str, Any]:
    told = {
        "plan": plan(Stage.CANARY, epoch=7, share=0.05, stand_in=Colour.GREEN).as_json(),
        "held": "",
        "trips": 2,
        "rest_remaining_s": 0.0,
        "ready_fraction": 0.5,
        "rejected": {"r9": "ill"},
        "dropped_reports": 3,
        "store_error": None,
        "events_not_recorded": 0,
        "replicas": {"g1": {"epoch": 7, "silent_s": 0.1}, "g2": {"epoch": 6, "silent_s": 0.1}},
    }
    return told | other


class World:
    """A controller's status, gates and clock in hand."""

    def __init__(self) -> None:
        self.now, self.clock, self.book = status(), ManualClock(), MetricBook()
        self.gates: dict[str, str] | None = GATES
        self.metrics = RolloutMetrics(self.book, lambda: self.now, lambda _release: self.gates, self.clock)

    def look(self, after_s: float = 0.0) -> RecordedSink:
        self.clock.advance(after_s)
        self.metrics.look()
        return drained(self.book)


def test_the_plan_and_who_follows_it_are_told() -> None:
    gauges = World().look().gauges
    assert gauges[table.PLAN_STAGE.name, ("canary",)] == 1.0
    single = (table.PLAN_EPOCH, table.GATEWAYS, table.BEHIND, table.RELAPSES, table.READY, table.REJECTED, table.HELD)
    assert [gauges[metric.name, ()] for metric in single] == [7, 2, 1, 2, 0.5, 1, 0]


def test_a_stage_grows_old_until_it_moves_on_and_by_the_controllers_own_clock() -> None:
    world = World()
    world.look()
    world.clock.jump_wall(7200.0)
    assert world.look(after_s=40.0).gauges[table.STAGE_AGE.name, ()] == 40.0
    world.now = status(plan=plan(Stage.CANARY, epoch=8, share=0.04, stand_in=Colour.GREEN).as_json())
    assert world.look(after_s=5.0).gauges[table.STAGE_AGE.name, ()] == 45.0, "another share is the same stage"
    world.now = status(plan=plan(Stage.RAMP_20, epoch=9, share=0.2, stand_in=Colour.GREEN).as_json())
    assert world.look(after_s=5.0).gauges[table.STAGE_AGE.name, ()] == 0.0


def test_what_nobody_can_say_is_not_known() -> None:
    world = World()
    world.now, world.gates = status(ready_fraction=None), None
    gauges = world.look().gauges
    assert math.isnan(gauges[table.READY.name, ()])
    assert all(math.isnan(gauges[table.GATES.name, (result,)]) for result in table.GATE_RESULTS)


def test_gates_are_counted_by_how_they_ended_and_told_one_by_one() -> None:
    world = World()
    gauges = world.look().gauges
    assert [gauges[table.GATES.name, (result,)] for result in table.GATE_RESULTS] == [1, 1, 1]
    assert gauges[table.GATE.name, ("skew_word_ids",)] == 1.0
    assert gauges[table.GATE.name, ("accuracy",)] == 0.0
    world.gates = {"size": "passed"}
    gauges = world.look().gauges
    assert math.isnan(gauges[table.GATE.name, ("accuracy",)]), "of this release nobody asked it"
    assert gauges[table.GATE.name, ("size",)] == 1.0


def publish(home: Home, name: str, body: object) -> Path:
    def fill(folder: Path) -> None:
        (folder / Role.GATE_REPORT).write_text(json.dumps(body))

    return home.releases(SystemClock()).publish(name, fill, meta={}).path


def report(**other: object) -> dict[str, object]:
    return {"name": "size", "passed": True, "value": 1.0, "limit": 2.0, "why": "", "waived": None} | other


def test_a_published_releases_report_says_how_its_gates_ended(tmp_path: Path) -> None:
    results = [report(), report(name="a", passed=False), report(name="b", passed=False, waived="known")]
    path = publish(Home(root=tmp_path), "r1", {"results": results})
    assert gate_results(path) == {"size": "passed", "a": "failed", "b": "waived"}


@pytest.mark.parametrize("body", [[], {}, {"results": 3}, {"results": [{}]}, {"results": ["x"]}])
def test_a_report_that_is_none_says_nothing(tmp_path: Path, body: object) -> None:
    assert gate_results(publish(Home(root=tmp_path), "r1", body)) is None


def test_a_report_that_was_changed_says_nothing_and_one_that_was_read_is_read_once(tmp_path: Path) -> None:
    path = publish(Home(root=tmp_path), "r1", {"results": [report()]})
    gates = remembered(path.parent)
    assert gates("absent") is None
    assert gates("r1") == {"size": "passed"}
    (path / Role.GATE_REPORT).write_text("{}")
    assert gate_results(path) is None
    assert gates("r1") == {"size": "passed"}


@pytest.mark.parametrize("works", [True, False])
async def test_a_controller_exports_and_one_whose_exporter_fails_leads_on(tmp_path: Path, works: bool) -> None:
    sink, asked = RecordedSink(), asyncio.Event()

    def make() -> Sink:
        asked.set()
        if not works:
            raise ConnectionError("Ray is away")
        return sink

    config = ControllerConfig(home=str(tmp_path), release="r1", profile="drill")
    controller = Controller(asdict(config), lambda: dict.fromkeys(Colour, 1.0), make)
    await controller.wait_plan(-1, 0.0)
    async with asyncio.timeout(5.0):
        await asked.wait()
    assert json.loads(await controller.wait_plan(-1, 0.0))["epoch"] == 1
    await controller.stop()
    assert sink.gauges.get((table.PLAN_EPOCH.name, ())) == (1.0 if works else None)


async def test_what_a_controller_exports_bears_the_name_of_its_app_also_where_that_is_told_later(
    tmp_path: Path,
) -> None:
    sink = RecordedSink()
    config = ControllerConfig(home=str(tmp_path), release="r1", profile="drill", app="intents")
    controller = Controller(asdict(config), lambda: dict.fromkeys(Colour, 1.0), lambda: sink)
    apps = [controller._book.whose["app"]]
    for told in ("", "renamed"):
        await controller.adopt("drill", 2, told)
        apps.append(controller._book.whose["app"])
    await controller.stop()
    assert apps == ["intents", "intents", "renamed"]
