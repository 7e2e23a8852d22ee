from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from failsoft.errors import ConfigError, PlanStoreError
from failsoft.health.clock import ManualClock
from failsoft.serving.plan.plan import RoutingPlan, Stage
from failsoft.serving.plan.planstore import RolloutState
from failsoft.serving.rollout.stages import NEXT, ON_TRIAL, WATCHED
from tests.serving.worlds import MemoryStore, World, quick_policy, world_at

STEPS_UP = [Stage.SHADOW, *NEXT.values()]


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("stage", Stage)
def test_a_killed_controller_comes_back_with_the_same_plan_and_epoch(stage: Stage) -> None:
    world = world_at(stage, trial=stage in ON_TRIAL)
    before = world.plan
    world.start(ManualClock(monotonic_s=0.01, wall_s=-86_400.0))
    assert world.plan == before
    world.run(0.5)
    assert world.stage is stage or stage is Stage.DEGRADED


@pytest.mark.parametrize("stage", Stage)
def test_read_only_storage_keeps_the_old_plan_and_nobody_sees_another(stage: Stage) -> None:
    world = world_at(stage, trial=stage in ON_TRIAL)
    before = world.plan
    world.store.refuses = True
    with pytest.raises(PlanStoreError):
        world.rollout.force(5.0, why="x", by="me")
    with pytest.raises(PlanStoreError):
        world.rollout.propose("r9", by="me")
    with pytest.raises(PlanStoreError) if stage in WATCHED else nullcontext():
        world.trip("g1", before.epoch, "x")
    world.run(120.0, good=10)
    world.run(5.0, error=50)
    assert replace(world.plan, forced_remaining_s=None) == replace(before, forced_remaining_s=None)
    assert world.pushed == []
    assert world.events.count(("plan_not_stored", "read-only file system")) == 1
    world.store.refuses = False
    world.run(5.0)
    assert world.stage is not stage or stage in {Stage.DEGRADED, Stage.REJECTED}


def test_each_plan_is_stored_before_anyone_hears_of_it(world: World) -> None:
    stored_epochs = []

    def look(plan: RoutingPlan) -> None:
        other = World(disk=world.disk)
        stored_epochs.append(other.plan.epoch)
        assert other.plan == plan

    world.plan_changed = look  # type: ignore[method-assign]
    world.trip("g1", 1, "ill")
    world.rollout.force(3.0, why="x", by="me")
    world.rollout.restore(why="x", by="me")
    assert stored_epochs == [2, 3, 4]


def test_a_damaged_stored_plan_is_numbered_past_and_starts_again_from_rest(tmp_path: Path) -> None:
    world = World(tmp_path, policy=quick_policy(keep_every_s=1e9))
    world.bring_to(Stage.CANARY, trial=True)
    newest_epoch = world.plan.epoch
    newest = max(tmp_path.glob("plan-?.json"), key=lambda path: int(json.loads(path.read_bytes())["write"]))
    newest.write_bytes(b"{ torn")
    world.start()
    assert world.plan.epoch > newest_epoch
    assert world.is_in(Stage.DEGRADED)
    assert "the newest stored plan can't be read" in world.plan.why


@pytest.mark.parametrize("stage", Stage)
def test_a_plan_that_is_followed_and_not_stored_is_numbered_past_so_that_orders_hold_again(stage: Stage) -> None:
    """After storage was lost, or an older copy of it came back, replicas passed over each plan and each order."""
    world = world_at(stage, trial=stage in ON_TRIAL)
    world.rollout.surpass(world.plan.epoch)
    assert world.pushed == [], "the very plan that is stored is followed"
    world.rollout.surpass(500)
    assert world.plan.epoch == 501
    assert world.stage is (Stage.DEGRADED if stage in WATCHED else stage)
    assert "plan 500 is followed" in world.plan.why
    world.rollout.force(5.0, why="x", by="me")
    assert (world.plan.epoch, world.plan.forced) == (502, True)


def test_where_storage_refuses_a_plan_that_is_followed_is_passed_by_later(world: World) -> None:
    world.store.refuses = True
    world.rollout.surpass(500)
    assert world.plan.epoch == 1
    world.store.refuses = False
    world.rollout.surpass(500)
    assert world.plan.epoch == 501


def test_evidence_and_elapsed_time_survive_a_restart() -> None:
    world = world_at(Stage.RAMP_20)
    world.run(4.0, good=1)
    before = world.rollout.status()["evidence"]
    world.start(ManualClock())
    after = world.rollout.status()["evidence"]
    assert after["active_s"] >= before["active_s"] - 1.5
    assert after["in_stage"][1] >= before["in_stage"][1] - 3


@pytest.mark.parametrize(("save_s", "at_most"), [(0.0, 61), (0.5, 8), (5.0, 2)])
def test_the_slower_the_disk_the_less_often_counts_are_stored_for_all_gateways_wait_meanwhile(
    monkeypatch: pytest.MonkeyPatch, save_s: float, at_most: int
) -> None:
    world, save = world_at(Stage.SERVING), MemoryStore.save

    def slow(store: MemoryStore, state: RolloutState) -> None:
        world.clock.advance(save_s)
        save(store, state)

    monkeypatch.setattr(MemoryStore, "save", slow)
    before = world.store.saves
    world.run(60.0, good=1)
    assert 1 <= world.store.saves - before <= at_most


def test_storage_that_refuses_slowly_is_asked_as_seldom_as_one_that_stores_slowly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, tries = world_at(Stage.SERVING), list[float]()

    def refuse(_store: MemoryStore, _state: RolloutState) -> None:
        world.clock.advance(10.0)
        tries.append(world.clock.monotonic_s())
        raise PlanStoreError("stale file handle")

    monkeypatch.setattr(MemoryStore, "save", refuse)
    began_s = world.clock.monotonic_s()
    world.run(600.0, good=1)
    assert 1 <= len(tries) * 10.0 <= (world.clock.monotonic_s() - began_s) / 10.0


def test_one_hang_of_the_disk_does_not_leave_an_hour_of_counts_unstored(monkeypatch: pytest.MonkeyPatch) -> None:
    world, save, tries = world_at(Stage.SERVING), MemoryStore.save, list[float]()

    def hang_once(store: MemoryStore, state: RolloutState) -> None:
        if not tries:
            world.clock.advance(600.0)
        tries.append(world.clock.monotonic_s())
        save(store, state)

    monkeypatch.setattr(MemoryStore, "save", hang_once)
    world.run(330.0, good=1)
    assert tries[1] - tries[0] <= 301.0
    assert len(tries) > 10, "and as often as before from then on"


@pytest.mark.parametrize("stage", Stage)
@pytest.mark.parametrize("jump_s", [86_400.0, -86_400.0, -3600.0])
def test_a_wall_clock_that_jumps_changes_nothing(stage: Stage, jump_s: float) -> None:
    world = world_at(stage, trial=stage in ON_TRIAL)
    before = world.plan
    world.clock.jump_wall(jump_s)
    world.rollout.tick()
    assert world.plan == before
    if stage is Stage.DEGRADED:
        world.run(9.0)
        assert world.is_in(Stage.DEGRADED)
        world.run(1.5)
        assert world.is_in(Stage.SHADOW)


def test_a_rest_goes_on_where_it_was_when_the_process_clock_starts_near_0() -> None:
    world = World(clock=ManualClock(monotonic_s=5_000_000.0))
    world.bring_to(Stage.DEGRADED)
    world.run(6.0)
    world.start(ManualClock(monotonic_s=0.02))
    left_s = world.rollout.status()["rest_remaining_s"]
    assert 4.0 <= left_s <= 5.0  # of 10; at most keep_every_s is rested twice
    world.run(left_s + 0.5)
    assert world.is_in(Stage.SHADOW)


def test_gateways_and_controllers_that_restart_do_not_move_the_return() -> None:
    world = world_at(Stage.DEGRADED)
    for number in range(9):
        world.trip(f"gateway-{number}", world.plan.epoch, "a new replica sees it too")
        world.trip(f"gateway-{number}", world.plan.epoch - 1, "and tells old news")
        world.report({"weak": 30}, epoch=world.plan.epoch - 1)
        world.run(1.0)
        world.start(ManualClock())
    world.run(1.5)
    assert world.is_in(Stage.SHADOW)


def test_an_order_expires_also_over_a_restart_and_the_model_returns_through_shadow(world: World) -> None:
    world.rollout.force(20.0, why="drill", by="me")
    world.run(12.0)
    world.start(ManualClock(monotonic_s=1.0))
    assert world.plan.forced
    assert 7.0 <= (world.plan.forced_remaining_s or 0.0) <= 9.0
    world.run(7.0)
    assert world.plan.forced
    world.run(2.5)
    assert (world.stage, world.plan.forced) == (Stage.SHADOW, False)
    assert "order has expired" in world.plan.why


def test_an_order_that_expires_early_leaves_the_rest_of_the_rest() -> None:
    world = world_at(Stage.DEGRADED)
    world.rollout.force(4.0, why="drill", by="me")
    world.run(4.5)
    assert (world.stage, world.plan.forced) == (Stage.DEGRADED, False)
    world.run(6.0)
    assert world.is_in(Stage.SHADOW)


@pytest.mark.parametrize("for_s", [0.0, -1.0, float("nan"), float("inf")])
def test_an_order_for_a_time_that_is_none_is_refused(world: World, for_s: float) -> None:
    with pytest.raises(ConfigError, match="above 0"):
        world.rollout.force(for_s, why="x", by="me")
    assert world.is_in(Stage.SERVING)


def test_restore_does_nothing_where_nothing_is_held_back(world: World) -> None:
    world.rollout.restore(why="x", by="me")
    assert world.plan.epoch == 1


def test_a_late_success_of_an_old_epoch_does_not_override_a_fall() -> None:
    world = world_at(Stage.CANARY)
    canary = world.plan.epoch
    world.trip("g1", canary, "probe A failed")
    world.report({"good": 500}, epoch=canary)  # probe B began earlier and was good
    world.run(5.0)
    assert world.is_in(Stage.DEGRADED)
    assert world.plan.relapses == 1
    world.run(15.5)
    assert world.is_in(Stage.SHADOW)
    world.report({"good": 500}, epoch=canary)
    assert world.rollout.status()["evidence"]["in_stage"] == [0, 0]
    assert world.rollout.status()["dropped_reports"] == 2


def test_an_old_trip_does_not_end_a_new_trial() -> None:
    world = world_at(Stage.SHADOW)
    world.trip("g1", world.plan.epoch - 1, "told late")
    assert world.is_in(Stage.SHADOW)


def test_news_from_a_plan_of_the_same_stage_still_counts() -> None:
    world = world_at(Stage.RAMP_50)
    first = world.plan.epoch
    world.ready = 0.4
    world.run(1.0)
    assert world.plan.epoch == first + 1
    world.report({"good": 7}, epoch=first)
    assert world.rollout.status()["evidence"]["in_stage"] == [0, 7]
    world.trip("g1", first, "ill")
    assert world.is_in(Stage.DEGRADED)


def test_a_batch_that_arrives_twice_counts_once() -> None:
    world = world_at(Stage.RAMP_50)
    batch = world.report({"good": 7})
    world.rollout.take(batch)
    assert world.rollout.status()["evidence"]["in_stage"] == [0, 7]
