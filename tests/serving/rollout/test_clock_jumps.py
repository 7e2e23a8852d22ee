"""No stage is skipped, shortened or lost by whatever the wall clock does, also while the controller is away."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from failsoft.health.clock import ManualClock
from failsoft.serving.plan.plan import Stage
from failsoft.serving.rollout.stages import MOVES, NEXT, ON_TRIAL
from tests.serving.worlds import STEP_S, World, world_at

DAY_S = 86_400.0
JUMPS_S = (DAY_S, -DAY_S, 3600.0, -3600.0)
WALL_S = 1_700_000_000.0
WAY = (Stage.SHADOW, *NEXT.values())
KEPT_S = 1.0
"""The policy's ``keep_every_s``: so much of a stage is done twice after a kill, at most."""


class Wallless(ManualClock):
    """Nobody may ask it what day it is."""

    def wall_s(self) -> float:
        raise AssertionError("a rollout asked for the wall clock")


@pytest.mark.parametrize("trial", [False, True])
def test_a_rollout_never_asks_for_the_wall_clock_through_all_stages_orders_and_kills(*, trial: bool) -> None:
    world = World(clock=Wallless())
    world.bring_to(Stage.SHADOW, trial=trial)
    for stage in WAY:
        world.run_until(stage)
        world.start(Wallless())
    world.rollout.force(5.0, why="drill", by="test")
    world.start(Wallless())
    world.run(6.0)
    world.rollout.restore(why="drill", by="test")
    world.run_until(Stage.SERVING)


def restarted(world: World, jump_s: float, booted_s: float = 0.02) -> None:
    """Killed, and begun again on a machine that was booted just now and whose date is another."""
    world.start(ManualClock(monotonic_s=booted_s, wall_s=WALL_S + jump_s))


@pytest.mark.parametrize("jump_s", JUMPS_S)
@pytest.mark.parametrize("stage", [Stage.DEGRADED, *sorted(ON_TRIAL)])
def test_a_controller_that_comes_back_on_another_day_owes_the_stage_all_the_time_it_owed(
    stage: Stage, jump_s: float
) -> None:
    """Of a stage that takes 5 s (a rest: 10) 3 are over when it is killed."""
    world, whole_s = world_at(stage, trial=stage in ON_TRIAL), 10.0 if stage is Stage.DEGRADED else 5.0
    plan = world.plan
    world.run(3.0, good=30)
    assert world.plan == plan
    restarted(world, jump_s)
    assert world.plan == plan
    world.rollout.tick()
    world.clock.jump_wall(-jump_s)  # and somebody sets the date right
    world.run(whole_s - 3.0 - STEP_S, good=30)
    assert world.plan == plan, "not a moment before the time that the stage takes"
    world.run(KEPT_S + 2 * STEP_S, good=30)
    assert world.stage is (Stage.SHADOW if stage is Stage.DEGRADED else NEXT[stage])
    assert world.plan.epoch == plan.epoch + 1


@pytest.mark.parametrize("jump_s", JUMPS_S)
@pytest.mark.parametrize("stage", [Stage.SERVING, Stage.REJECTED])
def test_a_plan_that_waits_for_nothing_stays_over_a_restart_on_another_day(stage: Stage, jump_s: float) -> None:
    world = world_at(stage, trial=True)
    plan = world.plan
    restarted(world, jump_s)
    world.run(90.0, good=30)  # longer than the quiet period after which relapses are forgotten
    assert (world.plan.stage, world.plan.releases, world.plan.subject) == (plan.stage, plan.releases, plan.subject)


@pytest.mark.parametrize("jump_s", JUMPS_S)
def test_an_order_that_expires_is_as_long_as_it_was_given_for_whatever_day_the_controller_comes_back(
    jump_s: float,
) -> None:
    world = World()
    world.rollout.force(20.0, why="drill", by="test")
    world.run(8.0)
    restarted(world, jump_s)
    world.run(11.0)
    assert world.plan.forced
    world.run(KEPT_S + 2 * STEP_S)
    assert not world.plan.forced


@settings(deadline=None)
@given(
    kills=st.lists(
        st.tuples(st.integers(1, 60), st.sampled_from(JUMPS_S), st.floats(0.0, 1e7)),
        max_size=6,
        unique_by=lambda k: k[0],
    ),
    jumps=st.dictionaries(st.integers(1, 60), st.sampled_from(JUMPS_S), max_size=6),
)
def test_on_the_way_back_each_move_is_one_of_the_table_and_none_comes_sooner_than_without_kills_and_jumps(
    kills: list[tuple[int, float, float]], jumps: dict[int, float]
) -> None:
    calm, rough = world_at(Stage.DEGRADED), world_at(Stage.DEGRADED)
    when = {at: (jump_s, booted_s) for at, jump_s, booted_s in kills}
    seen = [rough.stage]
    for step in range(1, 61):
        calm.run(STEP_S, good=30)
        if step in when:
            restarted(rough, *when[step])
        if step in jumps:
            rough.clock.jump_wall(jumps[step])
        rough.run(STEP_S, good=30)
        if rough.stage is not seen[-1]:
            seen.append(rough.stage)
        assert rough.plan.epoch <= calm.plan.epoch
        assert rough.plan.share <= calm.plan.share
    assert all(after in MOVES[before] for before, after in pairwise(seen))
    assert seen == [Stage.DEGRADED, *WAY][: len(seen)]
    assert len(seen) > 1
