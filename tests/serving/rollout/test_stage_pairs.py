"""All pairs of stages: each move that the table lists happens whole or not at all, and no other move is possible."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from failsoft.errors import IllegalMoveError, PlanStoreError
from failsoft.health.clock import ManualClock
from failsoft.health.lifecycle import Lifecycle
from failsoft.serving.plan.plan import Stage
from failsoft.serving.rollout.stages import MOVES, NEXT, ON_TRIAL
from tests.serving.worlds import KilledError, World, world_at

Cause = Callable[[World], None]
Pair = tuple[Stage, Stage]


def falls(world: World) -> None:
    world.trip("g1", world.plan.epoch, "ill")


def is_ordered_down(world: World) -> None:
    world.rollout.force(None, why="drill", by="me")


def is_restored(world: World) -> None:
    world.rollout.restore(why="drill", by="me")


def gives_way(world: World) -> None:
    """To another release."""
    world.rollout.propose("r3", by="me")


def is_given_up(world: World) -> None:
    world.rollout.abort("r2", why="drill", by="me")


def passes(world: World) -> None:
    """As long as it takes, and not a tick more; an order by hand, since a tick tells nobody what storage said."""
    stage = world.stage
    world.rollout.hold("r2", why="drill", by="me")
    while "passed:" not in str(world.rollout.status()["waits_for"]):
        world.run(0.5, good=10)
    world.store.refuses = world.refuses_later
    world.rollout.advance("r2", from_stage=stage, why="drill", by="me")


CAUSES: dict[Pair, Cause] = {
    (Stage.SERVING, Stage.DEGRADED): falls,
    (Stage.SERVING, Stage.SHADOW): gives_way,
    (Stage.SERVING, Stage.REJECTED): is_given_up,
    (Stage.DEGRADED, Stage.DEGRADED): is_ordered_down,
    (Stage.DEGRADED, Stage.SHADOW): is_restored,
    (Stage.DEGRADED, Stage.REJECTED): is_given_up,
    (Stage.REJECTED, Stage.DEGRADED): is_ordered_down,
    (Stage.REJECTED, Stage.SHADOW): gives_way,
}
for _stage in ON_TRIAL:
    CAUSES |= {
        (_stage, NEXT[_stage]): passes,
        (_stage, Stage.DEGRADED): falls,
        (_stage, Stage.REJECTED): is_given_up,
        (_stage, Stage.SHADOW): gives_way,
    }
LEGAL = sorted(CAUSES)


def test_every_move_of_the_table_is_tried_here() -> None:
    assert set(CAUSES) == {(before, after) for before, afters in MOVES.items() for after in afters}


@pytest.mark.parametrize(("before", "after"), sorted(set(product(Stage, Stage)) - set(CAUSES)))
def test_no_other_move_is_possible(before: Stage, after: Stage) -> None:
    done: list[Stage] = []
    life = Lifecycle(MOVES, before, lambda move: done.append(move.after))
    with pytest.raises(IllegalMoveError):
        life.move(after, why="drill")
    assert (life.state, done) == (before, [])


@pytest.mark.parametrize(("before", "after"), LEGAL)
def test_a_move_is_one_plan_that_survives_a_kill_and_a_clock_that_jumped(before: Stage, after: Stage) -> None:
    world = world_at(before, trial=True)
    epoch = world.plan.epoch
    CAUSES[before, after](world)
    moved = world.plan
    assert (moved.stage, moved.epoch) == (after, epoch + 1)
    for jump_s in (86_400.0, -86_400.0):
        world.start(ManualClock(monotonic_s=0.01, wall_s=1_700_000_000.0 + jump_s))
        assert world.plan == moved


@pytest.mark.parametrize(("before", "after"), LEGAL)
def test_a_move_that_storage_refuses_does_not_happen_for_anyone_also_after_a_kill(before: Stage, after: Stage) -> None:
    world = world_at(before, trial=True)
    old, cause = world.plan, CAUSES[before, after]
    world.refuses_later = True
    world.store.refuses = cause is not passes
    with pytest.raises(PlanStoreError):
        cause(world)
    assert (world.plan.epoch, world.plan.stage, world.pushed) == (old.epoch, old.stage, [])
    world.refuses_later = False
    world.start()  # with storage that can be written again
    assert (world.plan.epoch, world.plan.stage) == (old.epoch, old.stage)
    cause(world)
    assert (world.plan.epoch, world.plan.stage) == (old.epoch + 1, after)


@pytest.mark.parametrize(("before", "after"), LEGAL)
def test_a_kill_between_storing_and_telling_leaves_the_new_plan_true(before: Stage, after: Stage) -> None:
    """Nobody was told; the next poll finds it."""
    world = world_at(before, trial=True)
    epoch = world.plan.epoch
    world.killed_when_telling = True
    with pytest.raises(KilledError):
        CAUSES[before, after](world)
    world.killed_when_telling = False
    world.start()
    assert (world.plan.stage, world.plan.epoch) == (after, epoch + 1)


@pytest.mark.parametrize(("before", "after"), LEGAL)
def test_nobody_gets_more_of_the_subject_than_its_stage_gives(before: Stage, after: Stage) -> None:
    world = world_at(before, trial=True)
    CAUSES[before, after](world)
    assert world.plan.share == world.policy.share_of(after)
    assert (world.plan.mirror_share > 0.0) == (after is Stage.SHADOW)
