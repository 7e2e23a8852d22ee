"""Timing that is hard to fool: contenders take turns in one run, in a new order each round, one of them twice.

A ratio is the median over rounds of what two contenders took in the *same* round, so that a machine that slows down
half-way slows both. The contender that runs twice (A against A) shows how far from 1 a ratio may be by chance here.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

CONTROL = " (again)"
"""Added to the name of the contender that runs twice."""


@dataclass(frozen=True, kw_only=True)
class Contender:
    """Something to be timed."""

    name: str
    run: Callable[[], object]
    calls: int = 1
    """Calls of ``run`` in one timing: enough that one timing takes far longer than reading the clock."""
    before: Callable[[], object] = lambda: None
    """Called before each timing, not timed: waits, say, for what another contender has left to a thread."""


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """How many times longer one takes than the other."""

    value: float
    low: float
    high: float
    """Quartiles over the rounds."""
    by_minimum: float
    """Ratio of the shortest timings: what the code costs when nothing else disturbs."""


@dataclass(frozen=True, kw_only=True)
class Timings:
    """Seconds for one call, by contender and round."""

    seconds: dict[str, list[float]]

    def median_s(self, name: str) -> float:
        """The middle timing."""
        return statistics.median(self.seconds[name])

    def quartiles_s(self, name: str) -> tuple[float, float]:
        """The middle half of the timings."""
        return quartiles(self.seconds[name])

    def ratio(self, over: str, under: str) -> Ratio:
        """``over`` divided by ``under``, round by round."""
        pairs = [a / b for a, b in zip(self.seconds[over], self.seconds[under], strict=True)]
        low, high = quartiles(pairs)
        fastest = min(self.seconds[over]) / min(self.seconds[under])
        return Ratio(value=statistics.median(pairs), low=low, high=high, by_minimum=fastest)

    def control(self) -> Ratio:
        """The contender that ran twice, against itself."""
        (again,) = [name for name in self.seconds if name.endswith(CONTROL)]
        return self.ratio(again, again.removesuffix(CONTROL))


def interleave(
    contenders: Sequence[Contender],
    *,
    rounds: int,
    control: str,
    seed: int = 7,
    now: Callable[[], float] = time.perf_counter,
) -> Timings:
    """Time all contenders in ``rounds`` rounds after a round that is not counted.

    Args:
        contenders: their names are different.
        rounds: timings of each.
        control: name of the contender that runs twice.
        seed: of the order.
        now: the clock in seconds; ``time.process_time`` counts what the code itself takes, on a busy machine too.
    """
    field = [*contenders, *(_again(one) for one in contenders if one.name == control)]
    seconds: dict[str, list[float]] = {one.name: [] for one in field}
    order = random.Random(seed)
    with _no_collection():
        for one in field:
            _timed_s(one, now)
        for _ in range(rounds):
            for one in order.sample(field, len(field)):
                seconds[one.name].append(_timed_s(one, now))
    return Timings(seconds=seconds)


def rounds(most: int, *, least: int, budget_s: float) -> Iterator[int]:
    """Numbers of rounds: at least ``least``, then up to ``most``, as many as fit by the longest so far."""
    began_s, longest_s = time.monotonic(), 0.0
    for number in range(most):
        round_s = time.monotonic()
        if number >= least and round_s + longest_s > began_s + budget_s:
            return
        yield number
        longest_s = max(longest_s, time.monotonic() - round_s)


def each_call_s(run: Callable[[], object], count: int) -> list[float]:
    """The time of each of ``count`` single calls, for percentiles; a tenth as many come first and are not counted."""
    with _no_collection():
        for _ in range(max(1, count // 10)):
            run()
        return [_timed_s(Contender(name="", run=run)) for _ in range(count)]


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which ``share`` (0..1) of the values lie, by nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    """First and third quartile."""
    return percentile(values, 0.25), percentile(values, 0.75)


def _again(one: Contender) -> Contender:
    return replace(one, name=one.name + CONTROL)


def _timed_s(one: Contender, now: Callable[[], float] = time.perf_counter) -> float:
    run, repeats = one.run, range(one.calls)
    one.before()
    started_s = now()
    for _ in repeats:
        run()
    return (now() - started_s) / one.calls


@contextmanager
def _no_collection() -> Iterator[None]:
    """Garbage is collected before, not within, the timings."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
