"""What copies cost live answers by the clock on the wall, in slices of one run, so that all kinds meet the same noise.

One replica on one loop; every slice of a quarter of a second has its kind (no copies, no copies again, 1 %, all), in a
new order each round. How far chance alone moves a ratio is told twice: by the kind that is there twice, and by drawing
whole rounds anew, since the noise of a machine comes in spells.
"""

from __future__ import annotations

import asyncio
import gc
import random
from statistics import median

from failsoft.health.clock import SystemClock
from tests.benchmarks.measuring import CONTROL, Timings, percentile
from tests.benchmarks.shadow_replica import Replica, load

NONE = "no copies"
AGAIN = NONE + CONTROL
ONE_PERCENT, ALL = "1 % copied", "all copied"
SHARES = {NONE: 0.0, AGAIN: 0.0, ONE_PERCENT: 0.01, ALL: 1.0}
REQUESTS = 100
"""Of a slice: a quarter of a second."""
DRAWS = 400
Slices = dict[str, list[list[float]]]


def slices(*, rounds: int) -> Slices:
    """Seconds of each live answer, by kind and round."""
    gc.collect()
    gc.disable()  # collections of this process would fall on one kind or another
    try:
        return asyncio.run(_run(rounds))
    finally:
        gc.enable()


async def _run(rounds: int) -> Slices:
    here, order, found = Replica(SystemClock(), share=0.0), random.Random(5), Slices()
    consumer = asyncio.create_task(here.consume())
    for number in range(rounds + 1):
        for kind in order.sample(list(SHARES), len(SHARES)):
            here.copy(SHARES[kind])
            each_s = await load(here.answerer, REQUESTS, seed=number)
            here.copy(0.0)
            await asyncio.sleep(0.02)  # copies of this slice are none of the next one's
            if number:
                found.setdefault(kind, []).append(each_s)
    consumer.cancel()
    return found


def p99s(found: Slices) -> Timings:
    """The p99 of each slice; a ratio is the middle one of the rounds', so that one stall decides nothing.

    The p99 of all answers of a kind together is that of the one slice that met the longest stall: beside ten busy
    neighbours its ratio was known to lie between 0.12 and 6.7; the middle half of the rounds' was 0.74 to 1.38.
    """
    return Timings(seconds={kind: [percentile(each_s, 0.99) for each_s in each] for kind, each in found.items()})


def allowed(times: Timings, kind: str) -> tuple[float, float]:
    """Within these lie 95 % of the ratios to no copies that other draws of the same rounds would give (bootstrap)."""
    chance = random.Random(3)
    pairs = [a / b for a, b in zip(times.seconds[kind], times.seconds[NONE], strict=True)]
    drawn = [median(chance.choices(pairs, k=len(pairs))) for _ in range(DRAWS)]
    return percentile(drawn, 0.025), percentile(drawn, 0.975)


def verdict(times: Timings, *, limit: float) -> str:
    """What the noise allows to say of 1 %."""
    low, high = allowed(times, ONE_PERCENT)
    chance_low, chance_high = allowed(times, AGAIN)
    value = times.ratio(ONE_PERCENT, NONE).value
    words = (
        f"{value:.3f} ({low:.3f} to {high:.3f}, and no copies against themselves {chance_low:.3f} to {chance_high:.3f})"
    )
    if high <= limit:
        said = f"at most {limit}"
    else:
        said = f"more than {limit}" if low > max(limit, chance_high) else f"this machine can't tell it from {limit}"
    return f"measured by the clock on the wall the live p99 with 1 % of copies is {words} times that without: {said}"
