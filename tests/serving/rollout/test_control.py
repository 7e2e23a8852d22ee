from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from failsoft.artifacts.bundle import Baseline, Role, write_json
from failsoft.artifacts.home import Home
from failsoft.errors import ArtifactMissingError, ConfigError, DamagedArtifactError
from failsoft.health.clock import SystemClock
from failsoft.health.ledger import Side, read_ledger
from failsoft.health.window import Outcome
from failsoft.serving.pacing import LoadingPolicy
from failsoft.serving.plan.plan import Arm, Colour, RoutingPlan, Stage
from failsoft.serving.plan.trips import Trip
from failsoft.serving.rollout import verifying
from failsoft.serving.rollout.control import Controller, ControllerConfig
from failsoft.serving.rollout.evidence import OutcomeBatch

pytestmark = pytest.mark.anyio


def publish(home: Path, name: str, *, weak_fraction: float = 0.02) -> None:
    baseline = Baseline(
        samples=500,
        weak_fraction=weak_fraction,
        entropy_mean=0.1,
        entropy_std=0.05,
        logit_std=2.0,
        oov_fraction=0.01,
        label_mix={"play_music": 1.0},
    )
    releases = Home(root=home).releases(SystemClock())
    releases.publish(name, lambda folder: write_json(folder, Role.BASELINE, baseline), meta={})


def ready() -> Mapping[Colour, float]:
    return dict.fromkeys(Colour, 1.0)


def away() -> Mapping[Colour, float]:
    raise RuntimeError("Serve is not there")


@asynccontextmanager
async def running(home: Path, look: object = ready) -> AsyncIterator[Controller]:
    config = ControllerConfig(home=str(home), release="r1", profile="drill")
    controller = Controller(asdict(config), look)  # type: ignore[arg-type]
    try:
        yield controller
    finally:
        await controller.stop()


def ill(gateway: str) -> dict[str, Any]:
    return Trip(gateway=gateway, epoch=1, colour=Colour.BLUE, load_generation=1, why="ill").as_json()


def plan_of(text: str) -> RoutingPlan:
    return RoutingPlan.from_json(text)


async def test_a_long_poll_answers_at_once_when_the_epoch_is_another(tmp_path: Path) -> None:
    async with running(tmp_path) as controller, asyncio.timeout(60.0):
        assert plan_of(await controller.wait_plan(-1, 600.0)).epoch == 1


async def test_a_long_poll_waits_for_a_change_and_all_waiters_hear_it(tmp_path: Path) -> None:
    async with running(tmp_path) as controller:
        waiters = [asyncio.create_task(controller.wait_plan(1, 30.0)) for _ in range(20)]
        await asyncio.sleep(0.05)
        assert not any(waiter.done() for waiter in waiters)
        await controller.trip(ill("g1"))
        async with asyncio.timeout(60.0):
            plans = [plan_of(await waiter) for waiter in waiters]
        assert {(plan.epoch, plan.stage) for plan in plans} == {(2, Stage.DEGRADED)}


async def test_a_long_poll_ends_with_its_time(tmp_path: Path) -> None:
    async with running(tmp_path) as controller:
        assert plan_of(await controller.wait_plan(1, 0.02)).epoch == 1


async def test_a_trip_told_twice_is_one_fall(tmp_path: Path) -> None:
    async with running(tmp_path) as controller:
        first = await controller.trip(ill("g1"))
        assert await controller.trip(ill("g1")) == first
        assert plan_of(await controller.trip(ill("g2"))).epoch == 2


async def test_many_quiet_gateways_notice_together_what_none_notices_alone(tmp_path: Path) -> None:
    async with running(tmp_path) as controller:
        for gateway in range(12):
            outcomes = {Outcome.GOOD: 3, Outcome.WEAK: 2}  # 5 answers each, far below any gateway's minimum of 20
            batch = OutcomeBatch(
                gateway=f"g{gateway}", sequence=1, epoch=1, arm=Arm.SUBJECT, mirrored=False, outcomes=outcomes
            )
            answer = await controller.report([batch.as_json()])
            if plan_of(answer).stage is Stage.DEGRADED:
                break
        assert 3 <= gateway < 12  # judged as it was counted: the answer to the report that told it brings the news


async def test_a_batch_that_can_not_be_read_does_not_keep_its_gateways_others_from_counting(tmp_path: Path) -> None:
    async with running(tmp_path) as controller:
        outcomes = {Outcome.GOOD: 1, Outcome.WEAK: 60}
        good = OutcomeBatch(gateway="g", sequence=2, epoch=1, arm=Arm.SUBJECT, mirrored=False, outcomes=outcomes)
        odd = good.as_json() | {"sequence": 1, "outcomes": {"of a later version": 1}}
        assert plan_of(await controller.report([odd, good.as_json()])).stage is Stage.DEGRADED
    events = [event for event in read_ledger(Home(root=tmp_path).ledger).events if event.kind == "report_unreadable"]
    assert [event.count("count") for event in events] == [1]


async def test_rest_and_order_run_by_themselves(tmp_path: Path) -> None:
    async with running(tmp_path) as controller:
        await controller.force(0.2, "drill", "me")
        async with asyncio.timeout(60.0):
            assert plan_of(await controller.wait_plan(2, 60.0)).stage is Stage.SHADOW


async def test_only_a_whole_release_is_proposed(tmp_path: Path) -> None:
    publish(tmp_path, "r2")
    publish(tmp_path, "r3")
    (tmp_path / "releases" / "r3" / Role.BASELINE).write_text("{}")
    async with running(tmp_path) as controller:
        with pytest.raises(ArtifactMissingError, match="r9"):
            await controller.propose("r9", "me")
        with pytest.raises(DamagedArtifactError):
            await controller.propose("r3", "me")
        assert plan_of(await controller.propose("r2", "me")).subject_release == "r2"
        assert plan_of(await controller.abort("r2", "no", "me")).stage is Stage.REJECTED


async def test_what_is_proposed_is_verified_with_pauses_only_while_a_model_answers_callers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verifying, "PACE", LoadingPolicy(share=0.01, pauses_at_most_s=0.001))
    publish(tmp_path, "r2")

    def hurried(home: Path) -> int:
        return [event.kind for event in read_ledger(Home(root=home).ledger).events].count("loading_hurried")

    async with running(tmp_path) as controller:
        await controller.propose("r2", "me")
        assert hurried(tmp_path) == 1, "its first pause was its last: that is told"
    async with running(tmp_path / "ill") as controller:
        publish(tmp_path / "ill", "r2")
        await controller.trip(ill("g1"))
        await controller.propose("r2", "me")
        assert hurried(tmp_path / "ill") == 0


async def test_the_release_arms_the_health_rule_with_its_own_baseline(tmp_path: Path) -> None:
    publish(tmp_path, "r1", weak_fraction=0.07)
    async with running(tmp_path) as controller:
        outcomes = {Outcome.GOOD: 14, Outcome.WEAK: 6}  # chance may do that to 7 % in a short window, not to 5 %
        batch = OutcomeBatch(gateway="g", sequence=1, epoch=1, arm=Arm.SUBJECT, mirrored=False, outcomes=outcomes)
        await controller.report([batch.as_json()])
        health = (await controller.status())["health"]
        assert health["status"] == "healthy", health


async def until_ready(controller: Controller, known: float | None) -> None:
    for _ in range(600):
        if (await controller.status())["ready_fraction"] == known:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"the share of ready replicas did not become {known}")


async def test_ready_replicas_are_counted_and_unknown_once_serve_is_away(tmp_path: Path) -> None:
    looks = [ready]

    def look() -> Mapping[Colour, float]:
        return looks[-1]()

    async with running(tmp_path, look) as controller:
        await controller.wait_plan(-1, 0.0)
        await until_ready(controller, 1.0)
        looks.append(away)
        await until_ready(controller, None)


async def test_every_move_is_in_the_ledger_of_serving(tmp_path: Path) -> None:
    async with running(tmp_path) as controller:
        await controller.force(60.0, "drill", "me")
    events = read_ledger(tmp_path / "ledger.jsonl").events
    assert [event.kind for event in events] == ["plan_first", "stage_move"]
    assert {event.side for event in events} == {Side.SERVING}
    assert events[1].why == "SERVING → DEGRADED: ordered by me for 60 s: drill"
    assert (events[1].data["epoch"], events[1].data["before"]) == (2, "serving")


async def test_a_ledger_that_can_not_be_written_stops_no_move(tmp_path: Path) -> None:
    (tmp_path / "ledger.jsonl").mkdir()
    async with running(tmp_path) as controller:
        assert plan_of(await controller.trip(ill("g1"))).stage is Stage.DEGRADED
        assert (await controller.status())["events_not_recorded"] == 2


async def test_a_trip_that_storage_refuses_changes_nothing_and_is_no_error(tmp_path: Path) -> None:
    async with running(tmp_path) as controller:
        for slot in ("plan-0.json", "plan-1.json"):
            (tmp_path / "serving" / slot).unlink(missing_ok=True)
            (tmp_path / "serving" / slot).mkdir()
        assert plan_of(await controller.trip(ill("g1"))).stage is Stage.SERVING
        assert "stays in force" in (await controller.status())["store_error"]


async def test_the_same_profile_again_changes_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as controller:
        before = await controller.wait_plan(-1, 0.0)
        assert await controller.adopt("drill") == before
        with pytest.raises(ConfigError, match="no profile"):
            await controller.adopt("prod")


async def test_the_status_is_plain_json(tmp_path: Path) -> None:
    async with running(tmp_path) as controller:
        assert json.loads(json.dumps(await controller.status()))["plan"]["epoch"] == 1


def test_a_relative_home_is_refused() -> None:
    with pytest.raises(ConfigError, match="absolute"):
        ControllerConfig(home="here", release="r1")


async def test_a_controller_whose_storage_was_lost_leads_those_who_follow_its_old_plans(tmp_path: Path) -> None:
    async with running(tmp_path) as controller:
        plan = plan_of(await controller.wait_plan(41, 60.0))
        assert (plan.epoch, plan.stage) == (42, Stage.DEGRADED)
        assert plan_of(await controller.wait_plan(-1, 0.0)) == plan
