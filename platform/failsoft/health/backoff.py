"""How long to wait before the next try. Pure: chance is handed in."""

from __future__ import annotations

import random
from dataclasses import dataclass

from failsoft.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class BackoffPolicy:
    """Waits that grow by a factor up to a cap, spread by jitter so that many waiters do not return at once."""

    first_s: float = 10.0
    """Wait after the first failure; 10, 30, 90 s with the default factor."""
    factor: float = 3.0
    """Each wait is this many times the one before."""
    cap_s: float = 90.0
    """No wait is longer (before jitter)."""
    jitter_fraction: float = 0.1
    """Each wait is moved by up to this share of itself, either way."""

    def __post_init__(self) -> None:
        """Refuse waits that shrink, are negative, or can be nothing by chance."""
        if not self.first_s >= 0.0:
            raise ConfigError(f"first_s is {self.first_s}; a wait is 0 s or longer")
        if not self.factor >= 1.0:
            raise ConfigError(f"factor is {self.factor}; waits must not shrink, use 1.0 or more")
        if not self.cap_s >= self.first_s:
            raise ConfigError(f"cap_s is {self.cap_s}, below first_s {self.first_s}; the cap is the longest wait")
        if not 0.0 <= self.jitter_fraction < 1.0:
            raise ConfigError(f"jitter_fraction is {self.jitter_fraction}; use 0 up to (not including) 1")

    def wait_s(self, failures: int, rng: random.Random) -> float:
        """Seconds to wait after ``failures`` failures in a row (1 = the first); 0 for none."""
        if failures <= 0:
            return 0.0
        plain_s = grown(self.first_s, failures, factor=self.factor, cap=self.cap_s)
        return plain_s * (1.0 + self.jitter_fraction * rng.uniform(-1.0, 1.0))


def grown(first: float, failures: int, *, factor: float, cap: float) -> float:
    """A patience in any unit after ``failures`` in a row (1 = the first): ``first``, times the factor for each more."""
    try:
        return min(first * factor ** (failures - 1), cap)
    except OverflowError:  # so many failures that the wait has long met its cap
        return cap if first else 0.0
