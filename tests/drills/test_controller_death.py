"""Kills the controller for good measure: in every stage, and while many followers listen."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from statistics import quantiles

import pytest
import ray

from failsoft.artifacts.home import Home
from failsoft.errors import FailsoftError, PlanStoreError
from failsoft.health.sequential import Tally
from failsoft.serving.plan.follower import PlanFollower
from failsoft.serving.plan.plan import Stage
from failsoft.serving.plan.planstore import PlanStore, RolloutState
from failsoft.serving.rollout import transitions
from failsoft.serving.rollout.controller import (
    NAMESPACE,
    ControllerClient,
    ControllerConfig,
    controller_name,
    follow_plans,
    start_controller,
    stop_controller,
)
from failsoft.serving.rollout.evidence import Counts
from failsoft.serving.rollout.stages import stage_policy

pytestmark = [pytest.mark.drill, pytest.mark.usefixtures("ray_local")]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def state_in(stage: Stage) -> RolloutState:
    """A stored state in a stage, as the way of a new release leads to it."""
    policy = stage_policy("production")
    state = transitions.proposed(transitions.first_state("r1"), "r2", policy, why="drill")
    if stage is Stage.DEGRADED:
        return transitions.tripped(state, rest_s=300.0, why="drill")
    if stage is Stage.REJECTED:
        return transitions.rejected(state, why="drill")
    while state.plan.stage is not stage:
        state = transitions.advanced(state, policy, why="drill")
    counts = Counts(in_stage=Tally(bad=1, total=40), on_trial=Tally(bad=2, total=90), active_s=12.0)
    return replace(state, counts=counts)


@pytest.mark.anyio
@pytest.mark.parametrize("stage", Stage)
async def test_a_controller_killed_in_any_stage_returns_with_the_same_plan(tmp_path: Path, stage: Stage) -> None:
    config = ControllerConfig(home=str(tmp_path), release="r1")
    PlanStore(Home(root=tmp_path).serving).save(state_in(stage))
    start_controller(config)
    try:
        client = ControllerClient(config)
        before = await client.wait_plan(-1, 0.0)
        for _ in range(2):
            os.kill((await client.status())["pid"], signal.SIGKILL)
            async with asyncio.timeout(60.0):
                assert await client.wait_plan(-1, 0.0) == before
        assert (before.stage, (await client.status())["evidence"]["on_trial"][1]) == (
            stage,
            90 if stage not in {Stage.DEGRADED, Stage.REJECTED} else 0,
        )
    finally:
        stop_controller(config.home)


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Storage takes nothing for the time of the block; root is told by another mark than by the mode."""
    root = os.geteuid() == 0
    if root and subprocess.run(["chattr", "+i", folder], capture_output=True, check=False).returncode:
        pytest.skip("root writes into read-only folders, and this file system has no mark against it")
    if not root:
        folder.chmod(0o500)
    try:
        yield
    finally:
        if root:
            subprocess.run(["chattr", "-i", folder], check=True)
        else:
            folder.chmod(0o700)


@pytest.mark.anyio
@pytest.mark.parametrize("stage", Stage)
async def test_storage_that_takes_nothing_keeps_the_plan_over_a_kill_and_orders_are_refused_in_words(
    tmp_path: Path, stage: Stage
) -> None:
    config = ControllerConfig(home=str(tmp_path), release="r1")
    folder = Home(root=tmp_path).serving
    PlanStore(folder).save(state_in(stage))
    start_controller(config)
    try:
        client = ControllerClient(config)
        before = await client.wait_plan(-1, 0.0)
        with read_only(folder):
            for killed in (False, True):
                if killed:
                    os.kill((await client.status())["pid"], signal.SIGKILL)
                async with asyncio.timeout(60.0):
                    assert await client.wait_plan(-1, 0.0) == before
                with pytest.raises(PlanStoreError, match="the plan before it stays in force"):
                    await client.force(60.0, "drill", "me")
        after = await client.force(60.0, "drill", "me")
        assert (after.epoch, after.stage) == (before.epoch + 1, Stage.DEGRADED)
    finally:
        stop_controller(config.home)


@pytest.mark.anyio
async def test_a_trip_reaches_every_follower_by_push_half_of_them_within_50_ms_and_all_within_500(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """8 followers in this process; measured from the call to each one's callback. Percentiles are printed."""
    config = ControllerConfig(home=str(tmp_path), release="r1", profile="drill")
    start_controller(config)
    client, followers = ControllerClient(config), [follow_plans(config, name=f"g{n}") for n in range(8)]
    latencies_ms: list[float] = []
    try:
        for follower in followers:
            await follower.start()
        for number in range(40):
            latencies_ms += await _round(client, followers, why=f"drill {number}")  # the same order twice is no news
    finally:
        await asyncio.gather(*(follower.stop() for follower in followers))
        stop_controller(config.home)
    cuts = quantiles(latencies_ms, n=100)
    with capsys.disabled():
        print(f"\npush to 8 followers: p50 {cuts[49]:.1f} ms, p99 {cuts[98]:.1f} ms, max {max(latencies_ms):.1f} ms")
    assert cuts[49] < 50.0
    assert max(latencies_ms) < 500.0


async def _round(client: ControllerClient, followers: list[PlanFollower], *, why: str) -> list[float]:
    """One order; when each follower heard of it."""
    await asyncio.sleep(0.1)
    began_s, epoch = time.perf_counter(), followers[0].plan.epoch
    waits = [asyncio.create_task(_heard_ms(follower, epoch, began_s)) for follower in followers]
    await asyncio.sleep(0)
    await client.force(600.0, why, "me")
    return await asyncio.gather(*waits)


async def _heard_ms(follower: PlanFollower, epoch: int, began_s: float) -> float:
    while follower.plan.epoch == epoch:
        await follower.changed(timeout_s=5.0, known_epoch=epoch)
    return (time.perf_counter() - began_s) * 1000.0


@pytest.mark.anyio
async def test_a_controller_removed_for_good_is_made_again_by_its_followers(tmp_path: Path) -> None:
    config = ControllerConfig(home=str(tmp_path), release="r1", profile="drill")
    start_controller(config)
    follower = follow_plans(config, name="g1")
    await follower.start()
    try:
        before = await ControllerClient(config).force(600.0, "drill", "me")
        ray.kill(ray.get_actor(controller_name(config.home), namespace=NAMESPACE))
        follower.trip_locally("seen while nobody listens")
        async with asyncio.timeout(60.0):
            while follower.plan.epoch <= before.epoch:  # the push of `before` may not have arrived
                with suppress(FailsoftError):
                    await ControllerClient(config).restore("back", "me")
                await follower.changed(timeout_s=0.2, known_epoch=before.epoch)
        assert (follower.plan.epoch, follower.plan.stage) == (before.epoch + 1, Stage.SHADOW)
    finally:
        await follower.stop()
        stop_controller(config.home)
