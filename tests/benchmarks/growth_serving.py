"""What more gateways cost the controller, how soon a thousand of them have a plan, and what long requests cost."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from failsoft.demo.waves import glued_emoji
from failsoft.health.clock import SystemClock
from failsoft.health.monitor import HealthPolicy
from failsoft.health.simulation import Scenario, detection, draw
from failsoft.health.window import Outcome
from failsoft.serving.intake.sanitizer import TextPolicy, sanitize
from failsoft.serving.plan.follower import PlanFollower
from failsoft.serving.plan.plan import Arm, Colour, RoutingPlan
from failsoft.serving.plan.trips import Trip
from failsoft.serving.rollout.control import Controller, ControllerConfig
from failsoft.serving.rollout.evidence import OutcomeBatch
from tests.benchmarks.growth_curve import Curve, cpu_s, curve

REPLICAS = (1, 2, 4, 8, 16)
GATEWAYS = (1, 3, 10, 30, 100, 300, 1000)
CHARACTERS = (16, 64, 256, 1024, 4096)
_CALLS_PER_S, _REPORTS_PER_S = 50.0, 10.0
_WORDS = "please play some music by the band in town then book a table "


class HereSource:
    """The controller itself, asked in the same event loop: what Ray's calls cost comes on top of it."""

    def __init__(self, controller: Controller, name: str) -> None:
        self._controller = controller
        self._name = name

    async def wait_plan(self, known_epoch: int, timeout_s: float) -> RoutingPlan:
        """The current plan, or the next one."""
        return RoutingPlan.from_json(await self._controller.wait_plan(known_epoch, timeout_s, self._name))

    async def trip(self, trip: Trip) -> RoutingPlan:
        """A load of a model was found ill."""
        return RoutingPlan.from_json(await self._controller.trip(trip.as_json()))


def replica_curves(*, quick: bool) -> list[Curve]:
    """The same traffic over more gateways: the controller's work, and how late a broken model is noticed."""
    replicas = REPLICAS[:3] if quick else REPLICAS
    work = [asyncio.run(_reporting_s(count, seconds=2 if quick else 20)) for count in replicas]
    healthy, policy = draw(0.02, 200_000, np.random.default_rng(7)), HealthPolicy()
    noticed = []
    for count in replicas:
        scenario = Scenario(gateways=count, calls_per_s=_CALLS_PER_S, incidents=50 if quick else 300)
        half = detection(policy, healthy, scenario, np.random.default_rng(11)).quantile(0.5)
        noticed.append(float("nan") if half is None else half[0])
    return [
        curve("controller's work for a second of 50 answers", "gateways", replicas, work, allowed=1.0),
        curve("answers until a broken model is noticed", "gateways", replicas, noticed, allowed=0.0, unit="answers"),
    ]


async def _reporting_s(gateways: int, *, seconds: int) -> float:
    """Processor time of the real controller for the reports of one second."""
    with tempfile.TemporaryDirectory(prefix="failsoft-growth-") as folder:
        controller = _controller(Path(folder))
        try:
            await controller.wait_plan(-1, 0.0)
            per_report = max(1, round(_CALLS_PER_S / _REPORTS_PER_S / gateways))
            began_s = time.process_time()
            for number in range(1, round(seconds * _REPORTS_PER_S) + 1):
                for gateway in range(gateways):
                    await controller.report([_batch(f"g{gateway}", number, per_report).as_json()])
            return (time.process_time() - began_s) / seconds
        finally:
            await controller.stop()


def _batch(gateway: str, number: int, answers: int) -> OutcomeBatch:
    outcomes = {Outcome.GOOD: answers}
    return OutcomeBatch(gateway=gateway, sequence=number, epoch=1, arm=Arm.SUBJECT, mirrored=False, outcomes=outcomes)


def _controller(home: Path) -> Controller:
    config = ControllerConfig(home=str(home), release="r1", profile="drill")
    return Controller(asdict(config), _ready)


def _ready() -> Mapping[Colour, float]:
    return dict.fromkeys(Colour, 1.0)


def fan_out_curves(*, quick: bool) -> list[Curve]:
    """From a trip at one gateway until all have the new plan, and what standing by costs."""
    gateways = GATEWAYS[:4] if quick else GATEWAYS
    found = [asyncio.run(_fan_out(count)) for count in gateways]
    news, standing = zip(*found, strict=True)
    return [
        curve("from a trip until all gateways have the plan", "gateways", gateways, news, allowed=1.0),
        curve("processor time for a second of standing by", "gateways", gateways, standing, allowed=1.0),
    ]


async def _fan_out(count: int) -> tuple[float, float]:
    """Wall seconds until the last has it, and processor seconds in a quiet second, of controller and all followers."""
    with tempfile.TemporaryDirectory(prefix="failsoft-growth-") as folder:
        controller = _controller(Path(folder))
        first = RoutingPlan.from_json(await controller.wait_plan(-1, 0.0))
        stale = replace(first, epoch=0)
        followers = [
            PlanFollower(HereSource(controller, f"g{number}"), name=f"g{number}", clock=SystemClock(), first=stale)
            for number in range(count)
        ]
        try:
            await asyncio.gather(*(follower.start() for follower in followers))
            await asyncio.sleep(0.5)
            began_s = time.process_time()
            await asyncio.sleep(2.0)
            standing_s = (time.process_time() - began_s) / 2.0
            return await _news_s(followers), max(standing_s, 1e-9)
        finally:
            await asyncio.gather(*(follower.stop() for follower in followers))
            await controller.stop()


async def _news_s(followers: Sequence[PlanFollower]) -> float:
    there, left = asyncio.Event(), len(followers)

    def heard(plan: RoutingPlan) -> None:
        nonlocal left
        left -= plan.epoch == 2
        if not left:
            there.set()

    for follower in followers:
        follower.on_change(heard)
    began_s = time.perf_counter()
    followers[0].trip_locally("the benchmark says so")
    async with asyncio.timeout(60.0):
        await there.wait()
    return time.perf_counter() - began_s


def request_curves(*, quick: bool) -> list[Curve]:
    """Cleaning a text, by its length: clean, dirty, and what somebody would send to keep a gateway busy."""
    characters = CHARACTERS[:3] if quick else CHARACTERS
    policy = TextPolicy(max_words=100_000)
    texts = {
        "clean a clean text": lambda size: (_WORDS * (size // len(_WORDS) + 1))[:size],
        "clean a dirty text": lambda size: glued_emoji(_WORDS * (size // len(_WORDS) + 1), random.Random(3))[:size],
        "clean a text of marks": lambda size: (("e" + "\u0301\u0323" * 40)[:81].ljust(81, "e") * (size // 81 + 1))[
            :size
        ],
    }
    return [
        curve(name, "characters", characters, [_cleaning_s(make(size), policy) for size in characters], allowed=1.0)
        for name, make in texts.items()
    ]


def _cleaning_s(text: str, policy: TextPolicy) -> float:
    return cpu_s(lambda: sanitize(text, policy), calls=20)
