"""What operators may order of a rollout: hold back, hold still, let on, give up. Durable, and safe to say twice."""

from __future__ import annotations

import pytest

from failsoft.errors import ConfigError, PlanStoreError
from failsoft.serving.plan.plan import Arm, Colour, Stage
from failsoft.serving.rollout.stages import NEXT, ON_TRIAL, stage_named, stage_policy
from tests.serving.worlds import World, quick_policy, world_at


@pytest.mark.parametrize("stage", [*NEXT, Stage.DEGRADED])
def test_an_order_in_a_trial_leaves_the_old_release_standing_in_and_the_trial_begins_anew_after_it(
    stage: Stage,
) -> None:
    world = world_at(stage, trial=True)
    world.rollout.force(30.0, why="pause", by="me")
    plan = world.plan
    assert (plan.stage, plan.forced, plan.share, plan.stand_in) == (Stage.DEGRADED, True, 0.0, Colour.BLUE)
    world.rollout.restore(why="go on", by="me")
    plan = world.plan
    assert (plan.stage, plan.subject_release, plan.stand_in) == (Stage.SHADOW, "r2", Colour.BLUE)
    world.run_until(Stage.SERVING)
    assert (world.plan.subject_release, world.plan.stand_in) == ("r2", Colour.BLUE)


def test_an_order_against_a_promoted_release_lets_the_warm_old_one_answer() -> None:
    world = world_at(Stage.SERVING, trial=True)
    world.rollout.force(None, why="complaints", by="me")
    assert (world.plan.stage, world.plan.stand_in, world.plan.subject_release) == (Stage.DEGRADED, Colour.BLUE, "r2")


def test_a_stand_in_that_falls_ill_under_an_order_leaves_the_ladder_and_the_order_stands() -> None:
    world = world_at(Stage.CANARY, trial=True)
    world.rollout.force(None, why="pause", by="me")
    for _ in range(5):
        world.report({"weak": 10}, arm=Arm.STAND_IN)
    world.run(0.5)
    assert (world.plan.stand_in, world.plan.forced) == (None, True)


@pytest.mark.parametrize("stage", Stage)
def test_the_same_order_again_makes_no_new_plan_and_its_time_starts_anew(stage: Stage) -> None:
    world = world_at(stage)
    world.rollout.force(20.0, why="drill", by="me")
    epoch = world.plan.epoch
    world.run(5.0)
    world.rollout.force(20.0, why="drill", by="me")
    assert (world.plan.epoch, world.plan.forced_remaining_s) == (epoch, 20.0)
    assert ("order_renewed", "ordered by me for 20 s: drill") in world.events
    world.start()
    assert world.plan.forced_remaining_s == 20.0
    world.rollout.force(20.0, why="another reason", by="me")
    assert world.plan.epoch == epoch + 1


def test_a_release_on_trial_can_be_called_off_while_an_order_holds_it_back() -> None:
    world = world_at(Stage.RAMP_20, trial=True)
    world.rollout.force(None, why="pause", by="me")
    world.rollout.abort(world.plan.subject_release, why="looks wrong", by="me")
    assert (world.stage, world.plan.stand_in, world.plan.forced) == (Stage.REJECTED, Colour.BLUE, False)


@pytest.mark.parametrize("stage", Stage)
def test_giving_up_twice_is_one_plan(stage: Stage) -> None:
    world = world_at(stage, trial=True)
    world.rollout.abort("r2", why="looks wrong", by="me")
    after = world.plan
    world.rollout.abort("r2", why="looks wrong", by="me")
    assert world.plan == after
    assert (after.stage, after.share, after.release_in_service) == (Stage.REJECTED, 0.0, "r1")


def test_a_promoted_release_is_rolled_back_to_the_warm_one_in_one_plan() -> None:
    world = world_at(Stage.SERVING, trial=True)
    before = world.plan
    world.rollout.abort("r2", why="wrong answers that look sure", by="me")
    plan = world.plan
    assert (plan.epoch, plan.stage, plan.stand_in, plan.share) == (before.epoch + 1, Stage.REJECTED, Colour.BLUE, 0.0)
    assert plan.load_generation == before.load_generation  # nothing is loaded: the old one is warm
    assert "rolled back by me: wrong answers" in plan.why
    world.rollout.propose("r3", by="me")
    world.run_until(Stage.SERVING)
    assert world.plan.subject_release == "r3"


@pytest.mark.parametrize("stage", sorted(ON_TRIAL))
def test_only_the_release_that_was_named_is_given_up(stage: Stage) -> None:
    world = world_at(stage, trial=True)
    before = world.plan
    for order in (world.rollout.abort, world.rollout.hold, world.rollout.resume):
        with pytest.raises(ConfigError, match=f"r9 is not on trial; r2 is in {stage}"):
            order("r9", why="x", by="me")
    assert world.plan == before


@pytest.mark.parametrize("stage", sorted(ON_TRIAL))
def test_a_held_release_stays_over_restarts_until_it_is_let_go_and_still_falls(stage: Stage) -> None:
    world = world_at(stage, trial=True)
    epoch = world.plan.epoch
    for _ in range(2):
        world.rollout.hold("r2", why="release freeze", by="me")
    world.start()
    world.run(60.0, good=10)
    assert world.is_in(stage)
    assert world.plan.epoch == epoch  # nobody routes otherwise
    assert "held by me: release freeze" in world.rollout.status()["waits_for"]
    world.rollout.resume("r2", why="thaw", by="me")
    world.run(0.5, good=10)
    assert world.is_in(NEXT[stage])
    told = [kind for kind, _ in world.events if kind.startswith("trial_")]
    assert told == ["trial_held", "trial_resumed"]


def test_a_held_release_that_falls_rests_until_it_is_let_go() -> None:
    world = world_at(Stage.CANARY, trial=True)
    world.rollout.hold("r2", why="freeze", by="me")
    world.run(2.0, error=10)
    world.run(120.0, good=10)
    assert world.is_in(Stage.DEGRADED)
    assert world.rollout.status()["waits_for"] == "an operator: held by me: freeze"
    world.rollout.resume("r2", why="thaw", by="me")
    world.run(1.0)
    assert world.is_in(Stage.SHADOW)


@pytest.mark.parametrize("stage", [Stage.SERVING, Stage.REJECTED])
def test_there_is_nothing_to_hold_where_nothing_rises(stage: Stage) -> None:
    world = world_at(stage, trial=True)
    with pytest.raises(ConfigError, match="not on"):
        world.rollout.hold("r2", why="x", by="me")


def test_by_hand_each_stage_waits_for_an_operator_and_none_is_skipped() -> None:
    world = World(policy=quick_policy(by_hand=True))
    world.rollout.propose("r2", by="me")
    for stage, after in NEXT.items():
        with pytest.raises(ConfigError, match=f"r2 has not passed {stage} yet: no answer"):
            world.rollout.advance("r2", from_stage=stage, why="go", by="me")
        world.run(60.0, good=10)
        assert world.is_in(stage)
        assert "by hand" in world.rollout.status()["waits_for"]
        for _ in range(2):  # told twice, as over a restart of the controller: one step
            world.rollout.advance("r2", from_stage=stage, why="go", by="me")
        assert world.is_in(after)
        assert "let on by me: go" in world.plan.why
    assert world.plan.share == 1.0


def test_a_step_by_hand_is_taken_from_the_stage_that_was_looked_at_and_no_other() -> None:
    world = world_at(Stage.RAMP_20, trial=True)
    with pytest.raises(ConfigError, match="r2 is in ramp_20, not in shadow"):
        world.rollout.advance("r2", from_stage=Stage.SHADOW, why="go", by="me")
    with pytest.raises(ConfigError, match="no trial to pass"):
        world.rollout.advance("r2", from_stage=Stage.SERVING, why="go", by="me")
    with pytest.raises(ConfigError, match="there is no stage 'ramp_99'"):
        stage_named("ramp_99")


def test_orders_that_storage_refuses_change_nothing() -> None:
    world = world_at(Stage.CANARY, trial=True)
    world.store.refuses = True
    for order in (world.rollout.hold, world.rollout.abort):
        with pytest.raises(PlanStoreError):
            order("r2", why="x", by="me")
    assert (world.stage, world.rollout.status()["held"]) == (Stage.CANARY, "")


def test_the_profile_by_hand_differs_from_production_in_nothing_else() -> None:
    assert stage_policy("by-hand").by_hand
    assert stage_policy("by-hand").rules == stage_policy("production").rules


@pytest.mark.parametrize(("slots", "stage"), [(2, Stage.CANARY), (2, Stage.SERVING), (1, Stage.CANARY)])
def test_a_release_that_was_given_up_may_try_again_where_an_operator_says_so(slots: int, stage: Stage) -> None:
    world = World(slots=slots)
    world.rollout.propose("r2", by="me")
    world.run_until(stage)
    world.rollout.abort("r2", why="wrong answers", by="me")
    with pytest.raises(ConfigError, match="failsoft release promote r2 --again"):
        world.rollout.propose("r2", by="me")
    loads = sum(world.plan.load_generation.values())
    world.rollout.propose("r2", by="me", again=True)
    after = world.plan
    assert (after.stage, after.subject_release, after.share) == (Stage.SHADOW, "r2", 0.0)
    assert sum(after.load_generation.values()) == loads + 1
    assert "proposed again by me" in after.why
    assert world.rollout.status()["rejected"] == {}
    world.rollout.propose("r2", by="me", again=True)
    assert world.plan == after, "said twice it is one proposal"
    world.start()
    world.run_until(Stage.SERVING)
    assert world.plan.subject_release == "r2"
