"""What copies can cost live answers at most, worked out from what one copy takes of the gateway's loop.

A gateway has one loop, and the subject is another process: a copy delays a live answer only by the time for which it
has that loop. That time is measured as CPU of this process, which the neighbours on a busy machine do not move. Then
every recorded live answer is delayed by all of it for each copy that it can meet: its own, and those that come at
random while it is under way. Both are more than what happens, since a copy takes the loop in several short steps.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from failsoft.serving.plan.plan import RoutingPlan, should_mirror
from tests.benchmarks.measuring import percentile

DRAWS, REPEATS = 1000, 20


@dataclass(frozen=True, kw_only=True)
class CopyCost:
    """CPU of the gateway's loop."""

    mean_s: float
    high_s: float
    """97.5 % of the means of other draws of the same rounds lie below (bootstrap)."""
    choosing_s: float
    """Of each request, copied or not: whether it is to be copied."""

    @classmethod
    def of(cls, extra_s: Sequence[float], plan: RoutingPlan) -> CopyCost:
        """From what one copy took in each round, and a plan that copies some."""
        chance = random.Random(9)
        means = sorted(fmean(chance.choices(extra_s, k=len(extra_s))) for _ in range(DRAWS))
        high_s = means[int(0.975 * DRAWS)]
        return cls(mean_s=fmean(extra_s), high_s=high_s, choosing_s=_choosing_s(plan))


def bound(live_s: Sequence[float], cost: CopyCost, *, share: float, rate_hz: float) -> float:
    """How many times the p99 of live answers, at most: the middle of some draws of who meets whom.

    Args:
        live_s: answers that no copies were made of.
        cost: of a copy.
        share: of the requests that are copied.
        rate_hz: of the requests.
    """
    chance, before_s = random.Random(4), percentile(live_s, 0.99)

    def delayed(each_s: float) -> float:
        met, after_s = int(chance.random() < share), chance.expovariate(share * rate_hz)
        while after_s < each_s + cost.high_s:
            met, after_s = met + 1, after_s + chance.expovariate(share * rate_hz)
        return each_s + cost.choosing_s + met * cost.high_s

    drawn = sorted(percentile([delayed(each_s) for each_s in live_s], 0.99) for _ in range(REPEATS))
    return drawn[REPEATS // 2] / before_s


def in_words(ratio: float, cost: CopyCost, *, limit: float) -> str:
    """What follows, and from what."""
    said = f"at most {limit}" if ratio <= limit else f"not shown to be at most {limit}"
    return (
        f"a copy takes {cost.mean_s * 1e6:.0f} µs of the loop ({cost.high_s * 1e6:.0f} at most), choosing whom to copy "
        f"{cost.choosing_s * 1e6:.1f} µs of each request: by that the live p99 with 1 % of copies is at most "
        f"{ratio:.4f} times that without: {said}. A neighbour that takes the core from the loop stretches both alike"
    )


def _choosing_s(plan: RoutingPlan, calls: int = 5000) -> float:
    began_s = time.thread_time()
    for number in range(calls):
        should_mirror(plan, f"caller-{number}")
    return (time.thread_time() - began_s) / calls
