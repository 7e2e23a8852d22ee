"""A day of a model that is well and ill by turns, led by the product's own rollout at production's times."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from failsoft.serving.plan.plan import LIVE, Stage
from failsoft.serving.rollout.stages import StagePolicy
from tests.serving.worlds import World

DAY_S, STEP_S, BATCH = 86_400.0, 10.0, 10
TRAFFIC_HZ = 10.0
BAD_WHEN_WELL, BAD_WHEN_ILL = 0.01, 0.6


@dataclass(kw_only=True)
class Day:
    """What came of it."""

    falls: int = 0
    live_falls: int = 0
    """Falls from a stage in which the subject answered callers."""
    bad_answers: int = 0
    """That callers would have got from the ill model, had nothing else stood behind it."""
    bad_when_well: int = 0
    answers: int = 0
    """Of the model to callers, good and bad."""
    rests_s: list[float] = field(default_factory=list)
    resets: int = 0
    """How often a full quiet period set the rest back to its first value."""
    most_between_falls: int = 0
    """The most bad answers of an ill model from one fall to the next."""


def flapping_day(ill_s: float, well_s: float, *, policy: StagePolicy | None = None, seed: int = 3) -> Day:
    """Lead the model through a day; it is ill first, for ``ill_s`` after each ``well_s``."""
    world, rng, day = World(policy=policy or StagePolicy(keep_every_s=600.0)), random.Random(seed), Day()
    began_bad, due = 0, 0.0
    while world.clock.monotonic_s() < DAY_S:
        world.clock.advance(STEP_S)
        ill = world.clock.monotonic_s() % (ill_s + well_s) >= well_s
        due += TRAFFIC_HZ * STEP_S * max(world.plan.share, world.plan.mirror_share)
        while due >= 1.0 and not world.is_in(Stage.DEGRADED):
            before, count = world.stage, min(int(due), BATCH if ill else 10 * BATCH)
            due -= count
            _answer(world, rng, day, count=count, ill=ill)
            if world.is_in(Stage.DEGRADED):
                day.falls += 1
                day.live_falls += before in LIVE
                day.rests_s.append(float(world.rollout.status()["rest_remaining_s"]))
                day.most_between_falls = max(day.most_between_falls, day.bad_answers - began_bad)
                began_bad, due = day.bad_answers, 0.0
        world.rollout.tick()
    day.resets = sum(plan.why.startswith("no trip in") for plan in world.pushed)
    return day


def _answer(world: World, rng: random.Random, day: Day, *, count: int, ill: bool) -> None:
    """A gateway reports so many answers, and the controller looks at them."""
    bad = sum(rng.random() < (BAD_WHEN_ILL if ill else BAD_WHEN_WELL) for _ in range(count))
    if world.stage in LIVE:
        day.answers += count
        day.bad_answers += bad if ill else 0
        day.bad_when_well += 0 if ill else bad
    world.report({"good": count - bad, "weak": bad})
    world.rollout.tick()
