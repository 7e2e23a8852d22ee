"""The controller on a real, private Ray; tests/drills/test_controller_death.py goes on where this ends."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from failsoft import __version__
from failsoft.errors import ArtifactMissingError, ConfigError
from failsoft.serving.plan.plan import Stage
from failsoft.serving.rollout import controller as module
from failsoft.serving.rollout.control import Controller
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


class Older(Controller):
    """The controller of a version that had no word for its version."""

    async def status(self) -> dict[str, Any]:
        said = await super().status()
        del said["version"]
        return said


@pytest.mark.anyio
async def test_a_controller_of_another_version_gives_way_and_its_plan_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = ControllerConfig(home=str(tmp_path), release="r1", profile="drill")
    client, follower = ControllerClient(config), follow_plans(config, name="g1")
    with monkeypatch.context() as patched:
        patched.setattr(module, "Controller", Older)
        await follower.start()
    try:
        before, older = await client.force(600.0, "drill", "me"), await client.status()
        assert "version" not in older
        await asyncio.to_thread(start_controller, config)
        await asyncio.to_thread(start_controller, config)
        newer = await ControllerClient(config).status()
        assert (newer["version"], newer["plan"]["epoch"]) == (__version__, before.epoch)
        assert newer["pid"] != older["pid"]
        restored = await ControllerClient(config).restore("done", "me")
        async with asyncio.timeout(60.0):
            while follower.plan.epoch < restored.epoch:  # whoever followed the one before finds the next one
                await follower.changed(timeout_s=1.0, known_epoch=follower.plan.epoch)
        assert (await ControllerClient(config).status())["pid"] == newer["pid"]
    finally:
        await follower.stop()
        stop_controller(config.home)


def test_starting_twice_is_one_controller_and_stopping_twice_is_none(config: ControllerConfig) -> None:
    start_controller(config)
    stop_controller(config.home)
    stop_controller(config.home)


def test_two_homes_on_one_cluster_have_two_controllers() -> None:
    assert controller_name("/a") != controller_name("/b")
    assert controller_name("/a") == controller_name(Path("/a"))
