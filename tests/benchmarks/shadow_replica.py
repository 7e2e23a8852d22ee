"""One gateway replica whose models are stand-ins of a fixed time, and requests that come to it at random."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from itertools import accumulate

from failsoft.health.clock import Clock
from failsoft.health.monitor import HealthPolicy
from failsoft.serving.arms.mirror import MirrorQueue
from failsoft.serving.config import GatewayConfig
from failsoft.serving.intake.sanitizer import TextPolicy
from failsoft.serving.intents import INTENTS
from failsoft.serving.kit import Kit, KitShelf
from failsoft.serving.plan.plan import Colour, Stage
from failsoft.serving.request import Answerer, Mirrored
from failsoft.serving.watching.front import FrontDesk
from failsoft.serving.watching.outcomes import OutcomeBuffer
from failsoft.serving.watching.watch import Watch
from tests.serving.fakes import ScriptedArm, ladder, plan, reading
from tests.serving.labels import labels_of

RATE_HZ, MODEL_S = 400.0, 0.004


class Replica:
    """Answering, books, the mirror and its one consumer, in SHADOW.

    Args:
        clock: of the replica.
        share: of the requests that are copied.
        subject_s: how long the subject takes for a copy.
    """

    def __init__(self, clock: Clock, *, share: float, subject_s: float = MODEL_S) -> None:
        self.plan = replace(plan(Stage.SHADOW, share=0.0, stand_in=Colour.GREEN), mirror_share=share)
        self.mirror: MirrorQueue[Mirrored] = MirrorQueue(GatewayConfig().mirror_queue)
        kit = Kit(release="r1", ladder=ladder(), text_policy=TextPolicy(), baseline=None)
        watch, buffer = Watch(HealthPolicy(), lambda epoch, why: None), OutcomeBuffer("g1")
        desk = FrontDesk(
            plan=lambda: self.plan,
            shelf=KitShelf(lambda _: kit, kit),
            watch=watch,
            buffer=buffer,
            mirror=self.mirror,
            labels=labels_of(lambda: self.plan, watch, buffer, clock=clock),
        )
        models = {
            Colour.BLUE: ScriptedArm(takes_s=subject_s),
            Colour.GREEN: ScriptedArm(answer=reading(release="r0"), takes_s=MODEL_S),
        }
        self.answerer = Answerer(
            situation=desk.situation, models=models, journal=desk, clock=clock, config=GatewayConfig(), task=INTENTS
        )

    def copy(self, share: float) -> None:
        """Copy this share of the requests from now on."""
        self.plan = replace(self.plan, mirror_share=share)

    async def consume(self) -> None:
        """The one consumer; ends when it is cancelled."""
        await self.mirror.run(self.answerer.answer_mirrored)


async def load(answerer: Answerer, requests: int, *, seed: int = 11) -> list[float]:
    """Seconds from when each request was due to its answer."""
    loop, chance = asyncio.get_running_loop(), random.Random(seed)
    gaps_s = [chance.expovariate(RATE_HZ) for _ in range(requests - 1)]

    async def one(number: int, due_s: float) -> float:
        await asyncio.sleep(due_s - loop.time())
        await answerer.answer("play some jazz in the kitchen", key=f"{seed}-{number}", request_id=f"q{number}")
        return loop.time() - due_s

    dues_s = accumulate(gaps_s, initial=loop.time() + 0.01)
    return list(await asyncio.gather(*(one(number, due_s) for number, due_s in enumerate(dues_s))))
