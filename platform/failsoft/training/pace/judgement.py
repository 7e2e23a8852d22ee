"""Which rank holds the others up, from one window of times. Pure.

Each rank brings the median of the logarithm of its times and that median's standard error: 1.2533 σ/√n with σ = 1.4826
times the median distance from the median (Hampel 1974; Kendall and Stuart vol. 1 for the factor of the median). It is
compared with the median of the *others*, for a slow one among few would pull a median of all towards itself. With four
ranks or more the spread over the ranks counts as well: where ranks differ by nature (mixed machines), none is slow
because of that. What isn't known (too few times, no other rank to compare with) is no verdict.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from failsoft.training.pace.policy import PacePolicy
from failsoft.training.pace.shares import FULL

_SIGMA_OF_MAD = 1.4826
_ERROR_OF_MEDIAN = 1.2533
_LEAST_NOISE = 0.01
"""Times never count as quieter than one per cent: a clock that ticks coarsely would make every difference sure."""


@dataclass(frozen=True, kw_only=True)
class Pace:
    """One rank's times in a window."""

    log_median: float
    """Of seconds."""
    error: float
    """Standard error of that."""
    count: int

    @classmethod
    def of(cls, durations_s: Sequence[float]) -> Pace | None:
        """From the times themselves; None when there are none. What is no time (0, NaN) counts as none."""
        logs = [math.log(value) for value in durations_s if 0.0 < value < math.inf]
        if not logs:
            return None
        center, spread = _center(logs)
        error = _ERROR_OF_MEDIAN * max(_LEAST_NOISE, spread) / math.sqrt(len(logs))
        return cls(log_median=center, error=error, count=len(logs))


def at_full_share(paces: Sequence[Pace | None], shares: Sequence[int]) -> list[Pace | None]:
    """What a full share would have taken each rank, in proportion: who has less to do is not fast because of that.

    Of a rank with a lighter share that is an upper bound, since part of its time does not depend on the samples.
    """
    return [
        None if pace is None else replace(pace, log_median=pace.log_median + math.log(FULL / share))
        for pace, share in zip(paces, shares, strict=True)
    ]


class Look(StrEnum):
    """What one window says of a rank."""

    SLOW = "slow"
    KEEPS_UP = "keeps up"
    BETWEEN = "between"
    """Neither: nothing changes."""
    UNKNOWN = "unknown"
    """Too little is known: nothing changes either, and nothing counts as evidence."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What one window says of one rank."""

    look: Look
    factor: float = math.nan
    """Its median time over the others' median."""
    surely_above: float = math.nan
    """The factor's lower bound."""


_UNKNOWN = Finding(look=Look.UNKNOWN)


def judge(paces: Sequence[Pace | None], policy: PacePolicy) -> tuple[Finding, ...]:
    """One finding for each rank."""
    known = [pace if pace is not None and pace.count >= policy.min_samples else None for pace in paces]
    return tuple(_finding(rank, known, policy) for rank in range(len(known)))


def _finding(rank: int, paces: Sequence[Pace | None], policy: PacePolicy) -> Finding:
    own = paces[rank]
    others = [pace for number, pace in enumerate(paces) if number != rank and pace is not None]
    if own is None or not others:
        return _UNKNOWN
    sure = policy.sureness(len(others) + 1)
    center, spread = _center([pace.log_median for pace in others])
    spread = spread if len(others) >= 3 else 0.0
    between = _ERROR_OF_MEDIAN * spread / math.sqrt(len(others))
    error = math.hypot(own.error, max(between, _median([pace.error for pace in others])))
    excess = own.log_median - center
    low = excess - sure.errors * error
    worth = math.exp(own.log_median) - math.exp(center) >= policy.min_excess_s
    slow = low > math.log(sure.min_factor) and excess > policy.deviations * spread and worth
    look = Look.SLOW if slow else Look.KEEPS_UP if excess < math.log(policy.end_factor) else Look.BETWEEN
    return Finding(look=look, factor=math.exp(excess), surely_above=math.exp(low))


def _center(values: Sequence[float]) -> tuple[float, float]:
    """The median, and the standard deviation that the median distance from it stands for."""
    center = _median(values)
    return center, _SIGMA_OF_MAD * _median([abs(value - center) for value in values])


def _median(values: Sequence[float]) -> float:
    """Of a few numbers; six times quicker than numpy's, and the training waits for it."""
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2.0
