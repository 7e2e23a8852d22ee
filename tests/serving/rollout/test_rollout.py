from __future__ import annotations

from itertools import product

import pytest

from failsoft.errors import ConfigError
from failsoft.serving.plan.plan import LIVE, Colour, Stage
from failsoft.serving.rollout.stages import MOVES, NEXT, ON_TRIAL, WATCHED
from tests.serving.worlds import World, quick_policy, world_at

STEPS_UP = [Stage.SHADOW, *NEXT.values()]


@pytest.fixture
def world() -> World:
    return World()


def test_the_first_plan_serves_the_release_and_is_stored(world: World) -> None:
    assert (world.stage, world.plan.share, world.plan.epoch, world.plan.subject_release) == (
        Stage.SERVING,
        1.0,
        1,
        "r1",
    )
    assert world.store.saves == 1


def test_an_incident_walks_down_at_once_and_up_stage_by_stage(world: World) -> None:
    world.run(3.0, good=10)
    world.run(2.0, good=2, weak=8)
    assert world.is_in(Stage.DEGRADED)
    world.run_until(Stage.SERVING)
    stages = [plan.stage for plan in world.pushed]
    assert stages == [Stage.DEGRADED, *STEPS_UP]
    assert [plan.epoch for plan in world.pushed] == list(range(2, 2 + len(stages)))
    assert [plan.share for plan in world.pushed] == [0.0, 0.0, 0.05, 0.2, 0.5, 1.0]
    assert world.pushed[1].mirror_share == 0.5
    assert world.pushed[1].load_generation[Colour.BLUE] == 2


def test_moves_are_explained_in_words_with_numbers(world: World) -> None:
    world.bring_to(Stage.RAMP_20)
    moves = [why for kind, why in world.events if kind == "stage_move"]
    assert moves[0].startswith("SERVING → DEGRADED: made ill (g1)")
    assert moves[1] == "DEGRADED → SHADOW: the rest is over"
    numbers = "110 answers in 5 s, 0.0 % weak against 2.0 % of the healthy baseline"
    assert moves[3] == f"CANARY → RAMP_20: {numbers}, e-value 0.009 of being worse"


def test_the_status_says_what_each_stage_and_the_comparison_need_once_a_second_at_most(world: World) -> None:
    world.bring_to(Stage.CANARY, trial=True)
    needs = world.rollout.status()["needs"]
    assert needs["stages"]["shadow"] == {"answers": 70, "seconds": 5.0, "share": 0.0}
    assert isinstance(needs["answers_to_compare"], int)
    assert world.rollout.status()["needs"] is needs
    world.run(1.5, good=10)
    later = world.rollout.status()["needs"]
    assert later is not needs
    assert later["answers_to_compare"] <= needs["answers_to_compare"]  # the more is known of the stand-in


def test_a_new_release_walks_up_while_the_old_one_stands_in_and_stays_warm(world: World) -> None:
    world.rollout.propose("r2", by="me")
    plan = world.plan
    assert (plan.stage, plan.subject, plan.stand_in) == (Stage.SHADOW, Colour.GREEN, Colour.BLUE)
    assert plan.releases == {Colour.BLUE: "r1", Colour.GREEN: "r2"}
    world.run_until(Stage.SERVING)
    assert (world.plan.subject_release, world.plan.stand_in, world.plan.share) == ("r2", Colour.BLUE, 1.0)


@pytest.mark.parametrize("stage", Stage)
def test_a_trip_takes_all_traffic_in_every_stage_in_which_the_subject_answers(stage: Stage) -> None:
    world = world_at(stage)
    before = world.plan
    world.trip("g2", before.epoch, "weak answers")
    if stage in WATCHED:
        assert (world.stage, world.plan.share, world.plan.mirror_share) == (Stage.DEGRADED, 0.0, 0.0)
        assert len(world.pushed) == 1
    else:
        assert world.plan == before


@pytest.mark.parametrize("stage", Stage)
def test_an_order_outranks_every_stage_and_leaves_only_the_ladder(stage: Stage) -> None:
    world = world_at(stage)
    world.rollout.force(None, why="drill", by="me")
    plan = world.plan
    assert (plan.stage, plan.share, plan.mirror_share, plan.stand_in, plan.forced) == (
        Stage.DEGRADED,
        0.0,
        0.0,
        None,
        True,
    )
    world.run(500.0, good=10)
    assert world.plan.forced
    world.rollout.restore(why="done", by="me")
    assert (world.stage, world.plan.forced) == (Stage.SHADOW, False)
    assert world.plan.subject_release == "r1"


@pytest.mark.parametrize("stage", [*NEXT, Stage.DEGRADED])
def test_a_release_called_off_has_share_0_at_once_and_the_old_one_serves(stage: Stage) -> None:
    world = world_at(stage, trial=True)
    world.rollout.abort(world.plan.subject_release, why="looks wrong", by="me")
    plan = world.plan
    assert (plan.stage, plan.share, plan.mirror_share, plan.stand_in) == (Stage.REJECTED, 0.0, 0.0, Colour.BLUE)
    with pytest.raises(ConfigError, match="was rejected"):
        world.rollout.propose("r2", by="me")
    world.run(100.0, good=10)
    assert world.is_in(Stage.REJECTED)


@pytest.mark.parametrize("stage", Stage)
def test_what_serves_can_not_be_called_off(stage: Stage) -> None:
    world = world_at(stage)
    before = world.plan
    with pytest.raises(ConfigError, match="failsoft degrade"):
        world.rollout.abort(world.plan.release_in_service, why="no", by="me")
    assert world.plan == before


@pytest.mark.parametrize(
    ("stage", "trial"), [*product([*sorted(ON_TRIAL), Stage.DEGRADED], [True, False]), (Stage.REJECTED, True)]
)
def test_a_new_release_in_mid_analysis_starts_in_shadow_with_nothing_inherited(stage: Stage, trial: bool) -> None:
    world = world_at(stage, trial=trial)
    world.rollout.propose("r3", by="me")
    assert (world.stage, world.plan.share, world.plan.subject_release) == (Stage.SHADOW, 0.0, "r3")
    assert world.rollout.status()["evidence"]["in_stage"] == [0, 0]
    world.run_until(Stage.SERVING)
    assert [plan.stage for plan in world.pushed] == STEPS_UP


@pytest.mark.parametrize("stage", sorted(ON_TRIAL))
def test_no_traffic_holds_and_stops_the_clock(stage: Stage) -> None:
    world = world_at(stage)
    world.run(2.0, good=30)
    held = world.plan
    world.run(500.0)
    assert world.is_in(stage)
    assert (world.plan.share, world.plan.stage) == (held.share, held.stage)
    world.run(1.0, good=30)
    assert world.is_in(stage)  # 500 silent seconds did not count


@pytest.mark.parametrize("stage", sorted(ON_TRIAL))
def test_answers_that_are_all_bad_fall_and_never_pass(stage: Stage) -> None:
    world = world_at(stage)
    world.run(2.0, error=10)
    assert world.is_in(Stage.DEGRADED)


@pytest.mark.parametrize("stage", sorted(ON_TRIAL))
@pytest.mark.parametrize("missing", ["ready", "baseline"])
def test_unknown_capacity_or_an_unknown_baseline_holds(stage: Stage, missing: str) -> None:
    world = world_at(stage)
    setattr(world, missing, None)
    world.run(60.0, good=10)
    assert world.is_in(stage)
    setattr(world, missing, 1.0 if missing == "ready" else 0.02)
    world.run_until(NEXT[stage])


@pytest.mark.parametrize("stage", [Stage.CANARY, Stage.RAMP_20, Stage.RAMP_50])
def test_the_share_never_exceeds_the_ready_replicas(stage: Stage) -> None:
    world = world_at(stage)
    before = world.plan.share
    world.ready = 0.02
    world.run(0.5, good=10)
    assert (world.plan.share, world.stage) == (0.02, stage)
    world.run(60.0, good=10)
    assert (world.plan.share, world.stage) == (0.02, stage)
    world.ready = 1.0
    world.run(1.5, good=10)
    assert world.plan.share >= before


def test_a_return_with_no_ready_replica_waits_in_rest() -> None:
    world = world_at(Stage.DEGRADED)
    world.ready = 0.0
    world.run(60.0)
    assert world.is_in(Stage.DEGRADED)
    world.ready = None
    world.run(1.0)
    assert world.is_in(Stage.SHADOW)


def test_thin_traffic_raises_the_copies_keeps_the_evidence_and_says_so() -> None:
    world = world_at(Stage.SHADOW)
    world.run(3.0, good=1)
    assert world.plan.mirror_share > 0.5
    assert "traffic is thin" in world.plan.why
    assert world.rollout.status()["evidence"]["in_stage"][1] == 6


@pytest.mark.parametrize("stage", Stage)
def test_the_same_policy_twice_changes_nothing(stage: Stage) -> None:
    world = world_at(stage)
    world.run(1.0, good=3)
    before = (world.plan, world.rollout.status(), len(world.events))
    world.rollout.adopt(quick_policy())
    assert (world.plan, world.rollout.status(), len(world.events)) == before


def test_another_policy_takes_over_without_a_move() -> None:
    world = world_at(Stage.RAMP_20)
    before = world.plan
    world.rollout.adopt(quick_policy(max_gap_s=3.0))
    assert world.plan == before


@pytest.mark.parametrize("stage", Stage)
def test_the_same_release_proposed_again_changes_nothing(stage: Stage) -> None:
    world = world_at(stage, trial=stage in ON_TRIAL)
    before = world.plan
    if stage is Stage.REJECTED:
        with pytest.raises(ConfigError, match="was rejected"):
            world.rollout.propose(before.subject_release, by="me")
    else:
        world.rollout.propose(before.subject_release, by="me")
    assert world.plan == before


def test_no_release_is_proposed_against_an_order(world: World) -> None:
    world.rollout.force(None, why="hands off", by="me")
    with pytest.raises(ConfigError, match="failsoft restore"):
        world.rollout.propose("r2", by="someone else")


def test_the_table_and_the_machine_agree_on_where_callers_are_answered() -> None:
    assert {stage for stage in Stage if quick_policy().share_of(stage) > 0.0} == LIVE
    assert set(MOVES) == set(Stage)
