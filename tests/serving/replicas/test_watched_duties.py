"""A replica that can't hear of plans any more is replaced: one whose follower had ended looked healthy for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from failsoft.errors import ServingError
from failsoft.health.clock import SystemClock
from failsoft.serving import ConstantRung
from failsoft.serving.config import AppConfig
from failsoft.serving.plan.follower import PlanFollower
from failsoft.serving.plan.plan import Colour, RoutingPlan
from failsoft.serving.plan.trips import Trip
from failsoft.serving.replicas import deployments
from failsoft.serving.rollout.transitions import first_state
from failsoft.serving.task import Task

pytestmark = pytest.mark.anyio

PLAN = first_state("r1").plan


class Source:
    """A controller that answers once, and then what no controller may."""

    def __init__(self) -> None:
        self.asked = 0

    async def wait_plan(self, known_epoch: int, timeout_s: float) -> RoutingPlan:
        self.asked += 1
        if self.asked > 1:
            raise LookupError("a bug")
        return PLAN

    async def trip(self, trip: Trip) -> RoutingPlan:
        return PLAN


class Client:
    """Told what is held."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    async def holds(self, held: dict[str, Any]) -> None:
        pass


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AppConfig:
    def follow(_config: object, *, name: str) -> PlanFollower:
        return PlanFollower(Source(), name=name, clock=SystemClock(), first=PLAN, poll_every_s=0.01)

    monkeypatch.setattr(deployments, "follow_plans", follow)
    monkeypatch.setattr(deployments, "ControllerClient", Client)
    monkeypatch.setattr(deployments, "controller_of", lambda _config: SimpleNamespace())
    return AppConfig(home=tmp_path, release="r1", task=Task(rungs=lambda _bundle: [ConstantRung("help")]))


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30.0):
        while not holds():  # noqa: ASYNC110 -- a task that ends tells nobody
            await asyncio.sleep(0.01)


async def test_a_model_replica_whose_plans_come_no_more_is_ill(config: AppConfig) -> None:
    replica = deployments.ModelColour.__new__(deployments.ModelColour)
    await replica.__init__(config, Colour.GREEN, lambda _bundle: None)  # type: ignore[misc]
    await until(lambda: any(task.done() for task in replica._follower.tasks))
    with pytest.raises(ServingError, match=r"green: plan p\w+ has ended: LookupError\('a bug'\)"):
        await replica.check_health()
    await replica._follower.stop()
    for task in replica._tasks:
        task.cancel()
