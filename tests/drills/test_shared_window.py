"""The window over all replicas on a real controller: how far it is behind, and what quiet replicas see together."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from failsoft.health.clock import SystemClock
from failsoft.health.window import Outcome
from failsoft.serving.config import GatewayConfig
from failsoft.serving.plan.follower import PlanFollower
from failsoft.serving.plan.plan import Arm, Stage
from failsoft.serving.rollout.controller import (
    ControllerClient,
    ControllerConfig,
    follow_plans,
    start_controller,
    stop_controller,
)
from failsoft.serving.watching.batch import OutcomeBatch
from failsoft.serving.watching.outcomes import OutcomeBuffer, Seen
from failsoft.serving.watching.reporting import Reporter

pytestmark = [pytest.mark.drill, pytest.mark.usefixtures("ray_local")]
REPLICAS, MOST_BAD = 12, 5


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Replica:
    """What of a gateway reports and follows."""

    def __init__(self, config: ControllerConfig, name: str) -> None:
        self._client = ControllerClient(config, name=name)
        self.follower: PlanFollower = follow_plans(config, name=name)
        self.buffer = OutcomeBuffer(name)
        self.reporter = Reporter(self.buffer, self._send, clock=SystemClock(), every_s=GatewayConfig().report_every_s)
        self.buffer.on_record = self.reporter.noticed
        self.tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Replica:
        await self.follower.start()
        self.tasks = [asyncio.create_task(self.reporter.run())]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.follower.stop()

    def answer(self, outcome: Outcome) -> None:
        epoch = self.follower.plan.epoch
        self.buffer.record(Seen(epoch=epoch, arm=Arm.SUBJECT, outcome=outcome, latency_ms=1.0))

    async def fallen(self) -> float:
        while self.follower.plan.stage is not Stage.DEGRADED:
            await self.follower.changed(timeout_s=5.0, known_epoch=self.follower.plan.epoch)
        return time.perf_counter()

    async def _send(self, batches: tuple[OutcomeBatch, ...]) -> None:
        self.follower.offer(await self._client.report(batches))


@pytest.mark.anyio
async def test_answers_are_counted_within_100_ms_and_quiet_replicas_notice_together_what_none_sees_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each replica has 5 bad answers at most, a quarter of what it would need to judge for itself."""
    config = ControllerConfig(home=str(tmp_path), release="r1", profile="drill")
    start_controller(config)
    try:
        async with asyncio.timeout(120.0):
            replicas = [await Replica(config, f"g{number}").__aenter__() for number in range(REPLICAS)]
            for beat in range(200):  # 4 s at 50 answers a second, one in fifty weak
                replicas[beat % REPLICAS].answer(Outcome.WEAK if beat % 50 == 49 else Outcome.GOOD)
                await asyncio.sleep(0.02)
            seen = [replica.reporter.status() for replica in replicas]
            lags = sorted(float(status["max_ms"]) for status in seen)
            usual = sorted(float(status["p95_ms"]) for status in seen)
            waits = [asyncio.create_task(replica.fallen()) for replica in replicas]
            began_s, bad = time.perf_counter(), 0
            while not any(wait.done() for wait in waits) and bad < MOST_BAD * REPLICAS:
                replicas[bad % REPLICAS].answer(Outcome.WEAK)
                bad += 1
                await asyncio.sleep(0.02)
            fell_s = sorted(moment_s - began_s for moment_s in await asyncio.gather(*waits))
            await asyncio.gather(*(replica.__aexit__() for replica in replicas))
    finally:
        stop_controller(config.home)
    with capsys.disabled():
        print(
            f"\nshared window behind by {usual[len(usual) // 2]:.0f} ms at the 95th percentile of the median replica, "
            f"{lags[-1]:.0f} ms at most in {REPLICAS}; after {bad} bad answers over all, {fell_s[0] * 1000:.0f} ms "
            f"after the first of them, one replica fell back, and all within {(fell_s[-1] - fell_s[0]) * 1000:.0f} ms"
        )
    assert lags[len(lags) // 2] <= 100.0
    assert bad < MOST_BAD * REPLICAS
    assert fell_s[-1] - fell_s[0] < 0.5
