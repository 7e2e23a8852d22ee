from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest

from failsoft.errors import ServingError
from failsoft.health.clock import ManualClock
from failsoft.serving.plan.follower import PlanFollower
from failsoft.serving.plan.plan import Colour, RoutingPlan, Stage
from failsoft.serving.plan.trips import Trip
from failsoft.serving.rollout.stages import WATCHED
from failsoft.serving.rollout.transitions import first_state

pytestmark = pytest.mark.anyio

FIRST = first_state("r1").plan


def numbered(epoch: int, stage: Stage = Stage.SERVING) -> RoutingPlan:
    return replace(FIRST, epoch=epoch, stage=stage, share=1.0 if stage is Stage.SERVING else 0.0)


def ill(epoch: int, why: str) -> Trip:
    return Trip(gateway="g1", epoch=epoch, colour=Colour.BLUE, load_generation=1, why=why)


@dataclass
class FakeSource:
    """Keeps the promise of a controller: long polls wait, trips move the plan on. Can be away, or deaf."""

    plan: RoutingPlan = FIRST
    away: bool = False
    deaf: bool = False
    push_works: bool = True
    polls: int = 0
    trips: list[Trip] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def publish(self, plan: RoutingPlan) -> None:
        self.plan = plan
        news, self.news = self.news, asyncio.Event()
        news.set()

    async def wait_plan(self, known_epoch: int, timeout_s: float) -> RoutingPlan:
        await self._reachable()
        self.polls += known_epoch < 0
        if known_epoch == self.plan.epoch or (known_epoch >= 0 and not self.push_works):
            await asyncio.wait([asyncio.ensure_future(self.news.wait())], timeout=timeout_s)
        if known_epoch >= 0 and not self.push_works:
            await asyncio.sleep(3600)
        return self.plan

    async def trip(self, trip: Trip) -> RoutingPlan:
        await self._reachable()
        self.trips.append(trip)
        if trip.is_about(self.plan, self.plan.subject) and self.plan.stage in WATCHED:
            self.publish(numbered(self.plan.epoch + 1, Stage.DEGRADED))
        return self.plan

    async def _reachable(self) -> None:
        if self.deaf:
            await asyncio.sleep(3600)
        if self.away:
            raise ServingError("away")


@asynccontextmanager
async def following(source: FakeSource, *, poll_every_s: float = 0.02) -> AsyncIterator[PlanFollower]:
    first = numbered(0, Stage.DEGRADED)
    follower = PlanFollower(source, name="g1", clock=ManualClock(), first=first, poll_every_s=poll_every_s, wait_s=5.0)
    await follower.start(first_within_s=0.1)
    try:
        yield follower
    finally:
        await follower.stop()


async def until(follower: PlanFollower, epoch: int) -> None:
    async with asyncio.timeout(60.0):
        while follower.plan.epoch < epoch:
            await follower.changed(timeout_s=1.0, known_epoch=follower.plan.epoch)


async def test_the_first_plan_is_there_when_start_returns() -> None:
    async with following(FakeSource(plan=numbered(7))) as follower:
        assert follower.plan == numbered(7)
        assert follower.silent_s == 0.0


async def test_a_new_plan_is_pushed_without_waiting_for_the_poll() -> None:
    source = FakeSource()
    async with following(source, poll_every_s=60.0) as follower:
        await asyncio.sleep(0.01)
        source.publish(numbered(2))
        await until(follower, 2)


async def test_the_poll_finds_what_the_push_lost() -> None:
    source = FakeSource(push_works=False)
    async with following(source) as follower:
        source.publish(numbered(2))
        await until(follower, 2)


@pytest.mark.parametrize("failure", ["away", "deaf"])
async def test_a_silent_controller_leaves_the_last_plan_in_force_and_is_found_again(failure: str) -> None:
    source = FakeSource(plan=numbered(3))
    async with following(source) as follower:
        setattr(source, failure, True)
        source.publish(numbered(4))
        await asyncio.sleep(0.05)
        assert follower.plan.epoch in {3, 4}  # a push under way may still arrive
        setattr(source, failure, False)
        source.publish(numbered(5))
        await until(follower, 5)


@pytest.mark.parametrize("failure", ["away", "deaf"])
async def test_start_does_not_wait_for_ever_and_the_given_first_plan_holds(failure: str) -> None:
    source = FakeSource()
    setattr(source, failure, True)
    async with following(source) as follower:
        assert follower.plan == numbered(0, Stage.DEGRADED)
        assert follower.silent_s is None


async def test_a_local_trip_holds_back_at_once_and_is_told() -> None:
    source = FakeSource(plan=numbered(4))
    async with following(source, poll_every_s=60.0) as follower:
        seen: list[RoutingPlan] = []
        follower.on_change(seen.append)
        follower.trip_locally("7 of 20 weak")
        assert (follower.plan.stage, follower.plan.share, follower.plan.epoch) == (Stage.DEGRADED, 0.0, 4)
        assert "7 of 20 weak" in follower.plan.why
        assert seen == [follower.plan]
        await until(follower, 5)
        assert source.trips == [ill(4, "7 of 20 weak")]
        assert follower.tripped_locally is None


async def test_a_local_trip_needs_no_controller_and_is_told_again_until_it_is_heard() -> None:
    source = FakeSource(plan=numbered(4))
    async with following(source) as follower:
        source.away = True
        follower.trip_locally("ill")
        await asyncio.sleep(0.1)
        follower.offer(numbered(4))
        follower.offer(numbered(3))
        assert follower.plan.stage is Stage.DEGRADED
        source.away = False
        await until(follower, 5)
        assert source.trips[-1] == ill(4, "ill")


async def test_an_old_plan_never_replaces_a_newer_one() -> None:
    async with following(FakeSource(plan=numbered(9))) as follower:
        follower.offer(numbered(8, Stage.DEGRADED))
        assert follower.plan == numbered(9)


async def test_a_controller_that_is_behind_is_asked_now_and_then_and_not_without_a_pause() -> None:
    """Its storage was lost or set back; a long poll returns at once then, since it is told of another epoch."""
    source = FakeSource(plan=numbered(7))
    asked: list[int] = []
    promise = source.wait_plan

    async def counted(known_epoch: int, timeout_s: float) -> RoutingPlan:
        asked.append(known_epoch)
        if len(asked) > 200:
            await asyncio.sleep(3600)
        return await promise(known_epoch, timeout_s)

    async with following(source, poll_every_s=0.05) as follower:
        source.wait_plan = counted  # type: ignore[method-assign]
        source.publish(numbered(3))
        await asyncio.sleep(0.3)
        assert follower.plan == numbered(7)
        assert len(asked) < 50


async def test_waiting_for_a_change_ends_with_the_time() -> None:
    async with following(FakeSource(plan=numbered(9))) as follower:
        assert not await follower.changed(timeout_s=0.01)
        assert await follower.changed(timeout_s=0.01, known_epoch=8)
