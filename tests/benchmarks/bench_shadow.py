"""What copies for a subject in SHADOW cost those who ask: p99 of a gateway's answers with and without them.

The parts of one gateway replica (answering, books, the mirror and its one consumer) in one process; requests
come at random; models are stand-ins that take a fixed time, so that what differs between contenders is the copying
alone. Times count from when a request was due, so a loop that is held up is seen by all who wait behind it.

The loop's clock is this process's own CPU time, and jumps over waits: whatever else runs on the machine is left out. By
the clock on the wall a p99 of milliseconds on two busy cores is the scheduler's, and differs by half from itself.
"""

from __future__ import annotations

import asyncio
import gc
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from failsoft.health.clock import ManualClock
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
from tests.benchmarks.measuring import CONTROL, Timings, percentile
from tests.benchmarks.outcome import Outcome, Sheet, in_words
from tests.serving.fakes import ScriptedArm, ladder, plan, reading
from tests.serving.labels import labels_of
from tests.serving.virtual_time import run_virtually

RATE_HZ, MODEL_S = 400.0, 0.004
NONE = "no copies"
LIMIT = 1.02
"""What the live p99 may cost with the usual share of copies."""


@dataclass(frozen=True, kw_only=True)
class Shadow:
    """A way of copying."""

    name: str
    share: float
    subject_s: float = MODEL_S


SHADOWS = (
    Shadow(name=NONE, share=0.0),
    Shadow(name=NONE + CONTROL, share=0.0),
    Shadow(name="1 % copied", share=0.01),
    Shadow(name="all copied", share=1.0),
    Shadow(name="all copied, subject 100 times slower", share=1.0, subject_s=100 * MODEL_S),
)
KEYS = ("one_percent", "all", "all_to_a_slow_subject")


@dataclass(frozen=True, kw_only=True)
class Run:
    """What one run of a contender showed."""

    each_s: list[float]
    cpu_s: float
    """Of this process, for one answer."""
    sent: int
    dropped: int


class OwnTime(ManualClock):
    """What this process has worked, and what it would have waited."""

    def __init__(self) -> None:
        super().__init__()
        self._began_s = time.process_time()

    def monotonic_s(self) -> float:
        """Seconds since this clock was made."""
        return super().monotonic_s() + time.process_time() - self._began_s


def measure(*, quick: bool) -> Outcome:
    """p99 and CPU time, of each round; ratios are with copies over without, so 1 is best."""
    runs = _runs(rounds=5 if quick else 40, requests=100 if quick else 500)
    outcome = Outcome(name="shadow")
    for part, kind, of in (("p99 of live answers", "p99", _p99_s), ("CPU time for one live answer", "cpu", _cpu_s)):
        timings = Timings(seconds={name: [of(run) for run in each] for name, each in runs.items()})
        outcome.add(part, timings)
        for shadow, key in zip(SHADOWS[2:], KEYS, strict=True):
            outcome.ratios[f"{kind}_{key}_over_none"] = timings.ratio(shadow.name, NONE)
    outcome.sheets.append(_sheet(runs))
    outcome.notes.append(
        f"{RATE_HZ:.0f} requests a second, a model takes {MODEL_S * 1000:.0f} ms; goal: p99 ≤ {LIMIT} ×"
    )
    return outcome


def _runs(*, rounds: int, requests: int) -> dict[str, list[Run]]:
    """All contenders in turn, in a new order each round; a round before the first is not counted."""
    order, runs = random.Random(7), {shadow.name: list[Run]() for shadow in SHADOWS}
    for number in range(rounds + 1):
        for shadow in order.sample(SHADOWS, len(SHADOWS)):
            gc.collect()
            clock = OwnTime()
            run = run_virtually(clock, _drive(shadow, requests, clock))
            if number:
                runs[shadow.name].append(run)
    return runs


async def _drive(shadow: Shadow, requests: int, clock: OwnTime) -> Run:
    """One gateway replica under load; its consumer ends with the last answer."""
    now = replace(plan(Stage.SHADOW, share=0.0, stand_in=Colour.GREEN), mirror_share=shadow.share)
    mirror: MirrorQueue[Mirrored] = MirrorQueue(GatewayConfig().mirror_queue)
    kit = Kit(release="r1", ladder=ladder(), text_policy=TextPolicy(), baseline=None)
    watch, buffer = Watch(HealthPolicy(), lambda epoch, why: None), OutcomeBuffer("g1")
    desk = FrontDesk(
        plan=lambda: now,
        shelf=KitShelf(lambda _: kit, kit),
        watch=watch,
        buffer=buffer,
        mirror=mirror,
        labels=labels_of(lambda: now, watch, buffer, clock=clock),
    )
    models = {
        Colour.BLUE: ScriptedArm(takes_s=shadow.subject_s),
        Colour.GREEN: ScriptedArm(answer=reading(release="r0"), takes_s=MODEL_S),
    }
    answerer = Answerer(
        situation=desk.situation, models=models, journal=desk, clock=clock, config=GatewayConfig(), task=INTENTS
    )
    consumer = asyncio.create_task(mirror.run(answerer.answer_mirrored))
    began_cpu_s = time.process_time()
    each_s = await _load(answerer, requests)
    cpu_s = (time.process_time() - began_cpu_s) / requests
    consumer.cancel()
    return Run(each_s=each_s, cpu_s=cpu_s, sent=mirror.sent, dropped=sum(mirror.dropped.values()))


async def _load(answerer: Answerer, requests: int) -> list[float]:
    """Seconds from when each request was due to its answer."""
    loop = asyncio.get_running_loop()
    began_s, chance = loop.time() + 0.01, random.Random(11)
    gaps_s = [chance.expovariate(RATE_HZ) for _ in range(requests - 1)]

    async def one(number: int, due_s: float) -> float:
        await asyncio.sleep(due_s - loop.time())
        await answerer.answer("play some jazz in the kitchen", key=f"k{number}", request_id=f"q{number}")
        return loop.time() - due_s

    dues_s = accumulate(gaps_s, initial=began_s)
    return list(await asyncio.gather(*(one(number, due_s) for number, due_s in enumerate(dues_s))))


def _p99_s(run: Run) -> float:
    return percentile(run.each_s, 0.99)


def _cpu_s(run: Run) -> float:
    return run.cpu_s


def _sheet(runs: dict[str, list[Run]]) -> Sheet:
    """All answers of a contender together, and what became of its copies."""
    rows: list[tuple[str, ...]] = []
    for name, each in runs.items():
        pooled = [value for run in each for value in run.each_s]
        sent, dropped = sum(run.sent for run in each), sum(run.dropped for run in each)
        rows.append((name, *_percentiles(pooled), str(sent), str(dropped)))
    columns = ("all rounds together", "p50", "p99", "p99.9", "copies sent", "dropped")
    return Sheet(title="live answers, and copies", columns=columns, rows=rows)


def _percentiles(pooled: Sequence[float]) -> tuple[str, str, str]:
    p50, p99, p999 = (in_words(percentile(pooled, share)) for share in (0.5, 0.99, 0.999))
    return p50, p99, p999
