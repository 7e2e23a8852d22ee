"""What viewers of a console cost, from what a gateway spent in turns with them and without. Pure.

A gateway answers on one loop, so what viewers take of one core they take of its throughput, and no more. It is measured
as CPU time of the gateway's process, which neighbours on a busy machine stretch and do not add to.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from tests.benchmarks.measuring import Ratio, percentile
from tests.benchmarks.outcome import in_words

DRAWS = 2000
VIEWERS, MANY = 3, 9
_ENOUGH = 6
"""Pairs of turns from which draws tell anything; of fewer the least and the most are told."""


@dataclass(frozen=True, kw_only=True)
class Extra:
    """CPU seconds a second: cores."""

    cores: float
    low: float
    high: float
    """Within these lie 95 % of the middles that other draws of the same pairs of turns would give (bootstrap); of few
    pairs all of them."""

    @classmethod
    def of(cls, with_them: Sequence[float], without: Sequence[float]) -> Extra:
        """From cores in turns that took place side by side."""
        chance = random.Random(11)
        extra = [a - b for a, b in zip(with_them, without, strict=True)]
        drawn = [median(chance.choices(extra, k=len(extra))) for _ in range(DRAWS)]
        if len(extra) < _ENOUGH:
            return cls(cores=median(extra), low=min(extra), high=max(extra))
        return cls(cores=median(extra), low=percentile(drawn, 0.025), high=percentile(drawn, 0.975))

    def of_throughput(self) -> Ratio:
        """Throughput without them over that with them."""
        value, low, high = (1.0 / (1.0 - cores) for cores in (self.cores, self.low, self.high))
        return Ratio(value=value, low=low, high=high, by_minimum=value)

    def verdict(self, limit: float) -> str:
        """What is shown of a limit, as a share of a core."""
        if self.high < limit:
            return f"below {limit:.0%}"
        return f"more than {limit:.0%}" if self.low > limit else f"this machine can't tell it from {limit:.0%}"

    def in_words(self) -> str:
        """With how far it is known."""
        return f"{self.cores:.2%} of a core ({self.low:.2%} to {self.high:.2%})"


@dataclass(frozen=True, kw_only=True)
class Sum:
    """Of its parts: one look a second for all, and for each viewer a copy of it."""

    look_s: float
    """A second, however many look."""
    copy_s: float
    """A second and viewer."""

    @classmethod
    def of(cls, cores: dict[int, Sequence[float]]) -> Sum:
        """From cores by number of viewers: none, :data:`VIEWERS` and :data:`MANY`."""
        none, few, many = (median(cores[count]) for count in (0, VIEWERS, MANY))
        copy_s = (many - few) / (MANY - VIEWERS)
        return cls(look_s=few - none - VIEWERS * copy_s, copy_s=copy_s)

    def cores(self, viewers: int) -> float:
        """Of so many."""
        return self.look_s + viewers * self.copy_s

    def in_words(self, viewers: int) -> str:
        """The sum."""
        return (
            f"{in_words(self.look_s)} for the look that all share + {viewers} × {in_words(self.copy_s)} for a viewer's "
            f"copy = {in_words(self.cores(viewers))} a second, {self.cores(viewers):.2%} of a core"
        )
