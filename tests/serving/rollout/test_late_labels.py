"""What late labels of all gateways together do to a rollout: they trip it, hold it, and outlive its stages."""

from __future__ import annotations

import itertools

from failsoft.serving.plan.plan import Arm, Stage
from failsoft.serving.watching.batch import OutcomeBatch
from tests.serving.worlds import World, world_at


def labels(world: World, *, right: int = 0, wrong: int = 0, arm: Arm = Arm.SUBJECT, gateways: int = 1) -> None:
    """Each gateway reports so many."""
    for gateway in range(gateways):
        world.rollout.take(
            OutcomeBatch(
                gateway=f"labels-{gateway}-{next(_NUMBERS)}",
                sequence=1,
                epoch=world.plan.epoch,
                arm=arm,
                mirrored=world.stage is Stage.SHADOW,
                outcomes={},
                wrong=wrong,
                labelled=right + wrong,
            )
        )
    world.rollout.tick()


_NUMBERS = itertools.count()


def test_labels_that_no_gateway_could_judge_alone_trip_together() -> None:
    world = world_at(Stage.SERVING)
    labels(world, wrong=4, right=1, gateways=3)
    assert world.is_in(Stage.SERVING)
    labels(world, wrong=4, right=1, gateways=2)
    assert world.is_in(Stage.DEGRADED)
    assert "feedback: 20 wrong of 25 with a late label, limit 20%" in world.plan.why


def test_a_stage_is_not_passed_while_labels_leave_the_model_in_doubt() -> None:
    world = world_at(Stage.CANARY, trial=True)
    labels(world, wrong=3, right=2)
    world.run(60.0, good=10)
    assert world.stage is Stage.CANARY
    assert "too few to be sure" in world.rollout.status()["waits_for"]
    labels(world, right=40)
    world.run_until(Stage.SERVING)


def test_labels_about_the_same_weights_add_up_over_the_stages_of_a_trial() -> None:
    world = world_at(Stage.CANARY, trial=True)
    labels(world, wrong=2, right=12)
    world.run_until(Stage.RAMP_20)
    labels(world, wrong=14)
    assert world.stage is Stage.DEGRADED
    assert "wrong of 2" in world.plan.why


def test_a_model_that_was_loaded_again_starts_without_labels() -> None:
    world = world_at(Stage.SERVING)
    labels(world, wrong=30)
    assert world.stage is Stage.DEGRADED
    world.run_until(Stage.SERVING)


def test_a_release_that_labels_refute_in_every_trial_is_rejected() -> None:
    world = world_at(Stage.SHADOW, trial=True)
    for _ in range(3):
        assert world.stage is Stage.SHADOW
        labels(world, wrong=30)
        world.run(90.0)
    assert world.stage is Stage.REJECTED


def test_labels_of_a_release_whose_accuracy_nobody_measured_judge_nothing() -> None:
    world = World(right=None)
    labels(world, wrong=200)
    assert world.stage is Stage.SERVING


def test_a_stand_in_that_labels_refute_leaves_its_traffic_to_the_ladder() -> None:
    world = world_at(Stage.CANARY, trial=True)
    assert world.plan.stand_in is not None
    labels(world, wrong=30, arm=Arm.STAND_IN)
    assert world.plan.stand_in is None
