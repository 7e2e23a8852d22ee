"""Is this number far above what it usually is? Running median and spread, which a few outliers do not move.

The limit is ``median + deviations * 1.4826 * spread`` over the last applied steps, where the spread is the median
distance from the median (MAD), or the distance to the upper quartile where that is longer: losses and norms lean to
the right. 1.4826 makes both the standard deviation of a normal distribution (Hampel, "The Influence Curve and Its Role
in Robust Estimation", JASA 1974). Outliers in up to a fourth of the window move neither far.

Refused values are not learnt from, so a burst can't raise its own limit; a level that moves for good is met by the
breaker, which rolls back and then stops with a diagnosis. Where one batch in a few is regularly of another kind (a
small, hard source of data), it is refused as if it were a burst: mix the sources within batches, or don't look.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from failsoft.errors import ConfigError

_SIGMA_OF_MAD = 1.4826
_REFRESH = 10


@dataclass(frozen=True, kw_only=True)
class SpikePolicy:
    """When a value is a spike."""

    window: int = 200
    """Judge by the last so many applied steps."""
    warm_up: int = 100
    """Applied steps before the first verdict: before that nothing is known, and nothing is a spike."""
    deviations: float = 20.0
    """How many robust standard deviations above the median a value may be. This far out because tails are heavy: of
    30,000 simulated values none was refused that was normal (a fifth of the level wide), gamma(2), or lognormal with
    sigma 0.5 (at 10 deviations 0.02 %, more than the 0.01 % of batches that a run may lose and be called normal)."""
    min_relative_spread: float = 0.05
    """The spread counts as at least this share of the median: a plateau must not make every ripple a spike."""

    def __post_init__(self) -> None:
        """Refuse limits that everything or nothing would pass."""
        if not 2 <= self.warm_up <= self.window:
            raise ConfigError(
                f"warm_up is {self.warm_up} and window {self.window}; a spread needs 2 values or more, and the window "
                "must hold the warm-up"
            )
        if not 0.0 < self.deviations < math.inf:
            raise ConfigError(f"deviations is {self.deviations}; use a positive number such as 20")
        if not 0.0 <= self.min_relative_spread < math.inf:
            raise ConfigError(f"min_relative_spread is {self.min_relative_spread}; use 0 or a small share such as 0.05")


class SpikeWatch:
    """The recent values of one number, and the limit that follows from them.

    The limit is worked out anew every tenth value: it moves slowly, and the step is not to wait for it.
    """

    def __init__(self, policy: SpikePolicy) -> None:
        self.policy = policy
        self._values: deque[float] = deque(maxlen=policy.window)
        self._since = 0
        self.limit = math.inf
        """A value above this is a spike; infinite until warm."""

    def record(self, value: float) -> None:
        """Learn from the value of an applied step; what is not finite teaches nothing."""
        if not math.isfinite(value):
            return
        self._values.append(value)
        self._since += 1
        if self._since >= _REFRESH or (self.limit == math.inf and len(self._values) >= self.policy.warm_up):
            self._refresh()

    def in_words(self, value: float) -> str:
        """What makes ``value`` a spike."""
        return (
            f"{value:.4g} is above {self.limit:.4g}: {self.policy.deviations:g} deviations over the median of the last "
            f"{len(self._values)} applied steps"
        )

    def state_dict(self) -> dict[str, Any]:
        """The recent values, and the limit with its age: a run that resumes is to judge like one that went on."""
        limit = self.limit if math.isfinite(self.limit) else None
        return {"values": list(self._values), "limit": limit, "since": self._since}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the state of a checkpoint on."""
        self._values = deque(map(float, state_dict["values"]), maxlen=self.policy.window)
        self.limit = math.inf if state_dict["limit"] is None else float(state_dict["limit"])
        self._since = int(state_dict["since"])

    def _refresh(self) -> None:
        self._since = 0
        if len(self._values) >= self.policy.warm_up:
            self.limit = spike_limit(self._values, self.policy)


def spike_limit(values: Iterable[float], policy: SpikePolicy) -> float:
    """The highest value that is no spike, given the recent ones (at least one); infinite where they do not spread.

    A hinge or triplet loss is 0 in most batches: those that are not are no spikes, but what there is to learn.
    """
    recent = np.fromiter(values, dtype=np.float64)
    median, upper = map(float, np.quantile(recent, (0.5, 0.75)))
    spread = _SIGMA_OF_MAD * max(float(np.median(np.abs(recent - median))), upper - median)
    spread = max(spread, policy.min_relative_spread * abs(median))
    return median + policy.deviations * spread if spread > 0.0 else math.inf
