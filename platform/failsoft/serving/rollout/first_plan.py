"""What a replica goes by until it has heard of the controller."""

from __future__ import annotations

from pathlib import Path

from failsoft.artifacts.home import Home
from failsoft.errors import PlanStoreError
from failsoft.serving.plan.plan import Colour, RoutingPlan, Stage
from failsoft.serving.plan.planstore import PlanStore
from failsoft.serving.rollout.controller_config import ControllerConfig


def first_plan(config: ControllerConfig) -> RoutingPlan:
    """The stored plan; where none can be read, one that trusts no model. Blocks on the disk, and never raises."""
    try:
        loaded = PlanStore(Home.find(Path(config.home)).serving).load()
    except PlanStoreError:
        loaded = None
    if loaded is not None:
        return loaded.state.plan
    return RoutingPlan(
        epoch=0,
        stage=Stage.DEGRADED,
        subject=Colour.BLUE,
        stand_in=None,
        releases={Colour.BLUE: config.release, Colour.GREEN: None},
        load_generation={Colour.BLUE: 1, Colour.GREEN: 0},
        share=0.0,
        mirror_share=0.0,
        why="no plan has been heard yet",
    )
