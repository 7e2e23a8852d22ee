"""The controller while storage hangs: plans are told, what waits is bounded, and what waited holds when it is back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from failsoft.errors import PlanStoreError
from failsoft.health.window import Outcome
from failsoft.serving.plan.plan import Arm, Stage
from failsoft.serving.plan.planstore import PlanStore, RolloutState
from failsoft.serving.rollout import control, desk
from failsoft.serving.rollout.evidence import OutcomeBatch
from tests.serving.rollout.test_control import ill, plan_of, running

pytestmark = pytest.mark.anyio


@dataclass
class HangingStorage:
    """Takes nothing from when a test says so until it says otherwise."""

    monkeypatch: pytest.MonkeyPatch
    began: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)

    def hang(self) -> None:
        """From now on."""
        save = PlanStore.save

        def late(store: PlanStore, state: RolloutState) -> None:
            self.began.set()
            assert self.over.wait(20.0), "the test itself waits for it"
            save(store, state)

        self.monkeypatch.setattr(PlanStore, "save", late)


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> Iterator[HangingStorage]:
    """Goes on when the test is over."""
    made = HangingStorage(monkeypatch)
    yield made
    made.over.set()


async def test_while_storage_hangs_plans_are_told_and_the_order_that_waits_for_it_holds_when_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, storage: HangingStorage
) -> None:
    """The event loop itself waited for the disk: no poll, no label and no status was answered meanwhile."""
    monkeypatch.setattr(control, "_PATIENCE_S", 0.05)
    async with running(tmp_path) as controller:
        waiting = asyncio.create_task(controller.wait_plan(1, 60.0))
        await asyncio.sleep(0)
        storage.hang()
        order = asyncio.create_task(controller.force(60.0, "drill", "me"))
        async with asyncio.timeout(30.0):
            await asyncio.to_thread(storage.began.wait)
            assert plan_of(await controller.wait_plan(-1, 0.0)).epoch == 1
            assert plan_of(await controller.wait_plan(1, 0.05)).epoch == 1
            status = await controller.status()
        assert "storage has not answered" in status["store_error"]
        assert (status["plan"]["epoch"], order.done(), waiting.done()) == (1, False, False)
        storage.over.set()
        async with asyncio.timeout(30.0):
            assert plan_of(await order).stage is Stage.DEGRADED
            assert plan_of(await waiting).epoch == 2
            assert (await controller.status())["store_error"] is None


async def test_whoever_gives_up_waiting_for_storage_does_not_stop_a_move_half_way(
    tmp_path: Path, storage: HangingStorage
) -> None:
    async with running(tmp_path) as controller:
        await controller.wait_plan(-1, 0.0)
        storage.hang()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await controller.trip(ill("g1"))
        report = asyncio.create_task(controller.report([]))
        storage.over.set()
        async with asyncio.timeout(30.0):
            assert plan_of(await report).stage is Stage.DEGRADED, "what came later was done later"


def told_by(gateway: str, newest: int) -> list[dict[str, Any]]:
    """A report that no answer came for before: all that this gateway counted so far."""
    return [
        OutcomeBatch(
            gateway=gateway, sequence=number, epoch=1, arm=Arm.SUBJECT, mirrored=False, outcomes={Outcome.GOOD: 1}
        ).as_json()
        for number in range(1, newest + 1)
    ]


async def test_while_storage_hangs_only_so_many_calls_wait_for_it_and_plans_and_status_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, storage: HangingStorage
) -> None:
    """Gateways tell a trip again every second: each waited for ever, until no call of any kind was answered."""
    monkeypatch.setattr(control, "_PATIENCE_S", 0.05)
    monkeypatch.setattr(desk, "MOST_WAITING", 8)
    async with running(tmp_path) as controller:
        await controller.wait_plan(-1, 0.0)
        storage.hang()
        trips = [asyncio.create_task(controller.trip(ill("g1")))]
        async with asyncio.timeout(30.0):
            await asyncio.to_thread(storage.began.wait)
            trips += [asyncio.create_task(controller.trip(ill("g1"))) for _ in range(50)]
            await asyncio.sleep(0)
            with pytest.raises(PlanStoreError, match="nothing was changed"):
                await controller.force(60.0, "drill", "me")
            answered = [await controller.status() for _ in range(5)]
            assert plan_of(await controller.wait_plan(41, 0.0)).epoch == 1
            assert plan_of(await controller.wait_plan(-1, 0.0)).epoch == 1
        assert sum(not trip.done() for trip in trips) <= 8
        assert "orders and reports wait" in answered[-1]["store_error"]
        storage.over.set()
        async with asyncio.timeout(30.0):
            assert plan_of((await asyncio.gather(*trips))[0]).stage is Stage.DEGRADED
            assert (await controller.status())["store_error"] is None


async def test_reports_told_again_while_storage_hangs_are_held_once_and_counted_once(
    tmp_path: Path, storage: HangingStorage
) -> None:
    async with running(tmp_path) as controller:
        await controller.wait_plan(-1, 0.0)
        hangs = asyncio.create_task(controller._desk.do(partial(storage.over.wait, 20.0)))
        await asyncio.sleep(0)
        reports = [asyncio.create_task(controller.report(told_by("g1", newest))) for newest in range(1, 30)]
        await asyncio.sleep(0)
        storage.over.set()
        async with asyncio.timeout(30.0):
            await asyncio.gather(hangs, *reports)
            status = await controller.status()
        assert (status["evidence"]["in_stage"], status["dropped_reports"]) == ([0, 29], 0)
