"""Whether something grows: the slope of a series, robustly, with a bound on it. Pure; chance is handed in.

The slope is Theil's and Sen's: the median of the slopes between all pairs of moments, which a few odd moments (when a
process had just died) do not move. Its bound is by a bootstrap over blocks of time, since moments close together are
alike. What may be either is *not decided*, and that is no good news.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

MIN_MOMENTS = 12
_PAIRS = 1800
_DRAWN = 200


class Growth(StrEnum):
    """What is known of a series."""

    FLAT = "flat"
    GROWS = "grows"
    UNDECIDED = "not decided"


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """What a series may seem to gain over the whole time that was watched, and be called flat."""

    share: float
    """Of its usual value."""
    at_least: float
    """Or so much, if that is more: one process more or less is no leak."""

    def over(self, usual: float) -> float:
        """In the unit of the series."""
        return max(self.share * abs(usual), self.at_least)


@dataclass(frozen=True, kw_only=True)
class Judged:
    """One series, judged."""

    name: str
    verdict: Growth
    usual: float
    """The median."""
    per_hour: float
    low: float
    high: float
    """95 % bounds of the slope; NaN: too few moments."""
    allowed_per_hour: float
    moments: int

    def in_words(self) -> str:
        """For people."""
        return (
            f"{self.name}: {self.verdict}; usually {self.usual:,.4g}, {self.per_hour:+,.4g} an hour "
            f"({self.low:+,.4g} to {self.high:+,.4g}), {self.allowed_per_hour:,.4g} allowed, {self.moments} moments"
        )


def judge(
    name: str, at_s: Sequence[float], values: Sequence[float], *, allowance: Allowance, rng: random.Random
) -> Judged:
    """Judge one series.

    Args:
        name: for the words.
        at_s: moments in rising order.
        values: one for each; what is no number is left out.
        allowance: of the whole time.
        rng: draws pairs and blocks.

    Raises:
        ValueError: moments and values are not equally many.
    """
    if len(at_s) != len(values):
        raise ValueError(f"{name}: {len(at_s)} moments and {len(values)} values; each moment has one")
    known = [(at, value) for at, value in zip(at_s, values, strict=True) if math.isfinite(value)]
    usual = statistics.median(value for _, value in known) if known else math.nan
    hours = (known[-1][0] - known[0][0]) / 3600.0 if len(known) > 1 else 0.0
    allowed = allowance.over(usual) / hours if hours > 0.0 else math.nan
    if len(known) < MIN_MOMENTS or not hours > 0.0:
        slope = low = high = math.nan
    else:
        slope = 3600.0 * _slope(known, rng)
        low, high = (3600.0 * bound for bound in _bounds(known, rng))
    return Judged(
        name=name,
        verdict=verdict(low, high, allowed),
        usual=usual,
        per_hour=slope,
        low=low,
        high=high,
        allowed_per_hour=allowed,
        moments=len(known),
    )


def verdict(low: float, high: float, allowed: float) -> Growth:
    """By the bounds of a slope and what is allowed; NaN decides nothing."""
    if low > allowed:
        return Growth.GROWS
    return Growth.FLAT if high <= allowed else Growth.UNDECIDED


def _slope(known: Sequence[tuple[float, float]], rng: random.Random) -> float:
    """The median over all pairs, or over some thousands drawn of them."""
    count = len(known)
    if count * (count - 1) // 2 <= _PAIRS:
        pairs = [(first, second) for second in range(count) for first in range(second)]
    else:
        pairs = [tuple(sorted(rng.sample(range(count), 2))) for _ in range(_PAIRS)]  # type: ignore[misc]  # two of them
    slopes = [
        (known[second][1] - known[first][1]) / (known[second][0] - known[first][0])
        for first, second in pairs
        if known[second][0] > known[first][0]
    ]
    return statistics.median(slopes) if slopes else math.nan


def _bounds(known: Sequence[tuple[float, float]], rng: random.Random) -> tuple[float, float]:
    """The middle 95 % of the slopes of series that are put together of blocks of this one, each at its own time."""
    length = max(2, round(math.sqrt(len(known))))
    found = []
    for _ in range(_DRAWN):
        drawn: list[tuple[float, float]] = []
        while len(drawn) < len(known):
            begin = rng.randrange(len(known) - length + 1)
            drawn += known[begin : begin + length]
        slope = _slope(sorted(drawn)[:: max(1, len(drawn) // 60)], rng)
        if math.isfinite(slope):
            found.append(slope)
    found.sort()
    if not found:
        return math.nan, math.nan
    return found[int(0.025 * len(found))], found[min(len(found) - 1, int(0.975 * len(found)))]
