"""A model too large for two warm colours: one slot, the older release in host memory, the ladder in between."""

from __future__ import annotations

import pytest

from failsoft.errors import ConfigError
from failsoft.serving.plan.plan import Colour, Stage
from failsoft.serving.rollout.stages import NEXT
from tests.serving.worlds import World, quick_policy

STEPS_UP = [Stage.SHADOW, *NEXT.values()]


@pytest.fixture
def world() -> World:
    return World(slots=1)


def releases(world: World) -> tuple[str | None, str | None]:
    """What the slot has, and what is kept in host memory."""
    return world.plan.releases[Colour.BLUE], world.plan.releases[Colour.GREEN]


def test_a_new_release_takes_the_slot_and_the_old_one_is_kept(world: World) -> None:
    before = world.plan
    world.rollout.propose("r2", by="me")
    assert releases(world) == ("r2", "r1")
    assert (world.stage, world.plan.subject, world.plan.stand_in) == (Stage.SHADOW, Colour.BLUE, None)
    assert world.plan.load_generation[Colour.BLUE] == before.load_generation[Colour.BLUE] + 1
    assert "the ladder answers" in world.plan.why


def test_it_rises_by_the_same_stages_against_its_own_baseline_and_keeps_the_old_one(world: World) -> None:
    world.rollout.propose("r2", by="me")
    world.pushed.clear()
    world.run_until(Stage.SERVING)
    assert [plan.stage for plan in world.pushed] == STEPS_UP[1:]
    assert releases(world) == ("r2", "r1")
    assert {plan.stand_in for plan in world.pushed} == {None}


@pytest.mark.parametrize("stage", STEPS_UP)
def test_the_first_fall_of_a_new_release_swaps_the_old_one_back_in(world: World, stage: Stage) -> None:
    world.rollout.propose("r2", by="me")
    world.run_until(stage)
    if stage is Stage.SERVING:
        world.rollout.abort("r2", why="wrong answers", by="me")
    else:
        world.trip("g1", world.plan.epoch, "weak")
    assert releases(world) == ("r1", None)
    assert (world.stage, world.plan.share, world.plan.load_generation[Colour.BLUE]) == (Stage.SHADOW, 0.0, 3)
    assert "r1 is read from host memory" in world.plan.why
    assert "r2" in world.rollout.status()["rejected"]
    world.run_until(Stage.SERVING)
    assert world.plan.subject_release == "r1"


def test_a_release_that_has_served_falls_and_returns_as_ever(world: World) -> None:
    world.rollout.propose("r2", by="me")
    world.run_until(Stage.SERVING)
    world.trip("g1", world.plan.epoch, "weak")
    assert (world.stage, releases(world)) == (Stage.DEGRADED, ("r2", "r1"))
    world.run_until(Stage.SERVING)
    assert world.plan.subject_release == "r2"


def test_giving_up_twice_is_one_swap_and_there_is_no_second_way_back(world: World) -> None:
    world.rollout.propose("r2", by="me")
    world.rollout.abort("r2", why="x", by="me")
    after = world.plan
    world.rollout.abort("r2", why="x", by="me")
    assert world.plan == after
    with pytest.raises(ConfigError, match="no older release stands by for r1"):
        world.rollout.abort("r1", why="x", by="me")


def test_a_third_release_on_top_of_one_on_trial_keeps_the_one_that_served(world: World) -> None:
    world.rollout.propose("r2", by="me")
    world.rollout.propose("r3", by="me")
    assert releases(world) == ("r3", "r1")


def test_an_order_and_its_end_leave_the_slot_as_it_is(world: World) -> None:
    world.rollout.propose("r2", by="me")
    world.rollout.force(None, why="pause", by="me")
    world.rollout.restore(why="go on", by="me")
    assert (world.stage, releases(world)) == (Stage.SHADOW, ("r2", "r1"))


def test_a_restart_in_the_middle_of_a_swap_goes_on_with_it(world: World) -> None:
    world.rollout.propose("r2", by="me")
    world.trip("g1", world.plan.epoch, "weak")
    before = world.plan
    world.start()
    assert world.plan == before
    world.run_until(Stage.SERVING)


def test_another_policy_leaves_the_slots_as_they_are(world: World) -> None:
    world.rollout.adopt(quick_policy(max_gap_s=3.0))
    world.rollout.adopt(quick_policy(max_gap_s=3.0), slots=1)
    assert world.rollout.status()["slots"] == 1
    assert world.plan.epoch == 1


@pytest.mark.parametrize("trial", [True, False])
def test_a_plan_of_two_colours_becomes_one_of_one_slot_with_what_served(trial: bool) -> None:
    world = World()
    world.rollout.propose("r2", by="me")
    world.run_until(Stage.CANARY if trial else Stage.SERVING)
    epoch = world.plan.epoch
    world.slots = 1
    world.start()
    assert (releases(world), world.plan.stand_in) == (("r1" if trial else "r2", None), None)
    assert (world.stage, world.plan.epoch) == (Stage.SHADOW, epoch + 1)


def test_one_slot_becomes_two_colours_without_a_move() -> None:
    world = World(slots=1)
    before = world.plan
    world.slots = 2
    world.start()
    assert world.plan == before
    world.rollout.propose("r2", by="me")
    assert (world.plan.subject, world.plan.stand_in) == (Colour.GREEN, Colour.BLUE)


def test_an_operators_order_outlasts_the_release_that_it_found_in_the_slot(world: World) -> None:
    """Giving up a release that is held back brings no model back before the order ends."""
    world.rollout.propose("r2", by="me")
    world.rollout.force(30.0, why="nobody may be answered by a model", by="me")
    world.rollout.abort("r2", why="of no use", by="me")
    plan = world.plan
    assert (plan.stage, plan.subject_release, plan.forced) == (Stage.DEGRADED, "r1", True)
    assert (plan.share, plan.mirror_share, plan.forced_remaining_s) == (0.0, 0.0, 30.0)
    world.start()
    world.run(28.0, good=10)
    assert world.is_in(Stage.DEGRADED)
    world.run(3.0, good=10)
    assert world.is_in(Stage.SHADOW)


def test_an_operators_order_outlasts_the_change_to_one_slot() -> None:
    world = World()
    world.rollout.force(None, why="nobody may be answered by a model", by="me")
    world.rollout.adopt(world.policy, slots=1)
    world.run(600.0, good=10)
    assert (world.stage, world.plan.forced) == (Stage.DEGRADED, True)
