from __future__ import annotations

import pytest

from failsoft.serving.plan.plan import Arm, Colour, Stage
from failsoft.serving.rollout.stages import NEXT, ON_TRIAL
from tests.serving.worlds import World, quick_policy, world_at

STEPS_UP = [Stage.SHADOW, *NEXT.values()]


@pytest.fixture
def world() -> World:
    return World()


def test_the_rest_doubles_with_each_relapse_up_to_the_cap_and_starts_anew_after_a_quiet_period(world: World) -> None:
    rests_s = []
    for _ in range(5):
        world.trip("g1", world.plan.epoch, "ill")
        rests_s.append(world.rollout.status()["rest_remaining_s"])
        world.run_until(Stage.SHADOW)
    assert rests_s == [10.0, 20.0, 40.0, 80.0, 80.0]
    assert world.plan.relapses == 4
    world.run_until(Stage.SERVING)
    world.run(58.0, good=10)
    assert world.plan.relapses == 4
    world.run(200.0)  # silence is not quiet
    assert world.plan.relapses == 4
    world.run(10.0, good=10)
    assert (world.stage, world.plan.relapses) == (Stage.SERVING, 0)
    world.trip("g1", world.plan.epoch, "ill")
    assert world.rollout.status()["rest_remaining_s"] == 10.0


def test_a_model_that_flaps_for_a_day_relapses_a_bounded_number_of_times() -> None:
    world = World(policy=quick_policy(keep_every_s=3600.0, quiet_s=3600.0))
    falls = 0
    while world.clock.monotonic_s() < 86_400.0:
        if world.stage is Stage.CANARY or world.stage is Stage.SERVING:
            world.trip("g1", world.plan.epoch, "flaps")
            falls += 1
        if world.stage is Stage.DEGRADED:
            world.clock.advance(79.0)
        world.run(1.0, good=20)
    assert 100 < falls < 86_400 / 80


def test_a_release_that_falls_too_often_on_trial_is_rejected_and_the_old_one_serves(world: World) -> None:
    world.rollout.propose("r2", by="me")
    for _ in range(2):
        world.trip("g1", world.plan.epoch, "weak")
        assert world.is_in(Stage.DEGRADED)
        assert world.plan.stand_in is Colour.BLUE
        world.run_until(Stage.SHADOW)
    world.trip("g1", world.plan.epoch, "weak")
    assert (world.stage, world.plan.stand_in) == (Stage.REJECTED, Colour.BLUE)
    assert "fell 3 times" in world.plan.why


def test_a_release_that_has_served_is_never_rejected(world: World) -> None:
    world.rollout.propose("r2", by="me")
    world.run_until(Stage.SERVING)
    for _ in range(5):
        world.trip("g1", world.plan.epoch, "weak")
        assert world.is_in(Stage.DEGRADED)
        assert world.plan.stand_in is Colour.BLUE  # the old one is warm and answers
        world.run_until(Stage.SHADOW)


@pytest.mark.parametrize("stage", [*sorted(ON_TRIAL), Stage.DEGRADED])
def test_a_stand_in_that_falls_ill_leaves_its_traffic_to_the_ladder(stage: Stage) -> None:
    world = world_at(stage, trial=True)
    for _ in range(5):
        world.report({"weak": 10}, arm=Arm.STAND_IN)
    world.rollout.tick()
    assert (world.stage, world.plan.stand_in) == (stage, None)
    assert "fell ill" in world.plan.why


def test_after_a_rejection_the_old_release_can_fall_and_returns_by_the_stages() -> None:
    world = world_at(Stage.REJECTED)
    for _ in range(5):
        world.report({"late": 10}, arm=Arm.STAND_IN)
    world.rollout.tick()
    assert (world.stage, world.plan.subject_release, world.plan.stand_in) == (Stage.DEGRADED, "r1", None)
    world.run_until(Stage.SERVING)
    assert world.plan.subject_release == "r1"


def test_a_subject_that_fell_without_a_warm_stand_in_never_stands_in_for_the_next_release() -> None:
    world = world_at(Stage.DEGRADED)
    world.rollout.propose("r2", by="me")
    assert (world.plan.subject, world.plan.stand_in) == (Colour.GREEN, None)
