"""The controller on a real, private Ray; tests/drills/test_controller_death.py goes on where this ends."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from failsoft.errors import ArtifactMissingError, ConfigError
from failsoft.serving.plan.plan import Stage
from failsoft.serving.rollout.controller import (
    ControllerClient,
    ControllerConfig,
    controller_name,
    follow_plans,
    start_controller,
    stop_controller,
)

pytestmark = pytest.mark.usefixtures("ray_local")


@pytest.fixture
def config(tmp_path: Path) -> Iterator[ControllerConfig]:
    made = ControllerConfig(home=str(tmp_path), release="r1", profile="drill")
    start_controller(made)
    yield made
    stop_controller(made.home)


@pytest.mark.anyio
async def test_a_killed_controller_comes_back_with_plan_and_epoch_and_followers_never_lose_theirs(
    config: ControllerConfig,
) -> None:
    client, follower = ControllerClient(config), follow_plans(config, name="g1")
    await follower.start()
    before = await client.force(600.0, "drill", "me")
    pid = (await client.status())["pid"]
    os.kill(pid, signal.SIGKILL)
    assert follower.plan.epoch in {before.epoch - 1, before.epoch}
    async with asyncio.timeout(60.0):
        status = await client.status()
    after = status["plan"]
    assert status["pid"] != pid
    assert (after["epoch"], after["stage"], after["forced"]) == (before.epoch, Stage.DEGRADED, True)
    assert 500.0 < after["forced_remaining_s"] <= 600.0
    restored = await client.restore("done", "me")
    async with asyncio.timeout(60.0):
        while follower.plan.epoch < restored.epoch:
            await follower.changed(timeout_s=1.0, known_epoch=follower.plan.epoch)
    await follower.stop()


@pytest.mark.anyio
async def test_errors_of_the_controller_arrive_as_ours(config: ControllerConfig) -> None:
    client = ControllerClient(config)
    with pytest.raises(ArtifactMissingError, match="no release named 'r9'"):
        await client.propose("r9", "me")
    with pytest.raises(ConfigError, match="r9 is not on trial; r1 is in serving"):
        await client.abort("r9", "x", "me")


def test_starting_twice_is_one_controller_and_stopping_twice_is_none(config: ControllerConfig) -> None:
    start_controller(config)
    stop_controller(config.home)
    stop_controller(config.home)


def test_two_homes_on_one_cluster_have_two_controllers() -> None:
    assert controller_name("/a") != controller_name("/b")
    assert controller_name("/a") == controller_name(Path("/a"))
