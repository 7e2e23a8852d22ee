"""What copies for a subject in SHADOW cost those who ask: p99 of a gateway's answers with and without them.

The parts of one gateway replica (answering, books, the mirror and its one consumer) in one process; requests
come at random; models are stand-ins that take a fixed time, so that what differs between contenders is the copying
alone. Times count from when a request was due, so a loop that is held up is seen by all who wait behind it.

The loop's clock is this process's own CPU time, and jumps over waits: whatever else runs on the machine is left out.
The same by the clock on the wall (``shadow_by_wall.py``) says what a caller would see, as far as the machine's noise
lets it be seen: a p99 of milliseconds on two busy cores is the scheduler's. Where it can't be seen, a bound is worked
out from what a copy takes of the loop and the answers that were seen (``shadow_bound.py``).
"""

from __future__ import annotations

import asyncio
import gc
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from failsoft.health.clock import ManualClock, SystemClock
from tests.benchmarks import shadow_bound, shadow_by_wall
from tests.benchmarks.measuring import CONTROL, Ratio, Timings, percentile
from tests.benchmarks.outcome import Outcome, Sheet, in_words
from tests.benchmarks.shadow_bound import CopyCost
from tests.benchmarks.shadow_by_wall import NONE
from tests.benchmarks.shadow_replica import MODEL_S, RATE_HZ, Replica, load
from tests.serving.virtual_time import run_virtually

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
    _by_the_wall(outcome, runs, rounds=4 if quick else 120)
    outcome.notes.append(
        f"{RATE_HZ:.0f} requests a second, a model takes {MODEL_S * 1000:.0f} ms; goal: p99 ≤ {LIMIT} ×"
    )
    return outcome


def _by_the_wall(outcome: Outcome, runs: dict[str, list[Run]], *, rounds: int) -> None:
    """The same in slices of one run, what its noise allows to say, and what follows from the cost of a copy."""
    found = shadow_by_wall.slices(rounds=rounds)
    times = shadow_by_wall.p99s(found)
    outcome.add("p99 of live answers by the clock on the wall", times)
    outcome.ratios["wall_p99_one_percent_over_none"] = times.ratio(shadow_by_wall.ONE_PERCENT, NONE)
    outcome.ratios["wall_p99_all_over_none"] = times.ratio(shadow_by_wall.ALL, NONE)
    outcome.notes.append(shadow_by_wall.verdict(times, limit=LIMIT))
    cost = CopyCost.of(_each_copy_s(runs), Replica(SystemClock(), share=0.01).plan)
    live = ([run.each_s for run in runs[NONE]], found[NONE])  # with and without what neighbours do to them
    ratio = max(shadow_bound.bound(list(chain(*each)), cost, share=0.01, rate_hz=RATE_HZ) for each in live)
    outcome.ratios["bound_p99_one_percent_over_none"] = Ratio(value=ratio, low=ratio, high=ratio, by_minimum=ratio)
    outcome.notes.append(shadow_bound.in_words(ratio, cost, limit=LIMIT))


def _each_copy_s(runs: dict[str, list[Run]]) -> list[float]:
    """CPU that one copy took in each round: of the run that copied all, over the run of that round that copied none."""
    rounds = zip(runs[SHADOWS[3].name], runs[NONE], strict=True)
    return [(every.cpu_s - none.cpu_s) * len(every.each_s) / every.sent for every, none in rounds if every.sent]


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
    here = Replica(clock, share=shadow.share, subject_s=shadow.subject_s)
    consumer = asyncio.create_task(here.consume())
    began_cpu_s = time.process_time()
    each_s = await load(here.answerer, requests)
    cpu_s = (time.process_time() - began_cpu_s) / requests
    consumer.cancel()
    return Run(each_s=each_s, cpu_s=cpu_s, sent=here.mirror.sent, dropped=sum(here.mirror.dropped.values()))


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
