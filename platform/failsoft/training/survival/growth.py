"""When a run that has fewer workers than it may have asks for more. Judgement only; the supervisor acts.

Each resize costs a start of all workers, so spare room must have been there for a while; and a node that comes and goes
makes the run rest longer each time before it grows again.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from failsoft.errors import ConfigError
from failsoft.health.backoff import BackoffPolicy

RESIZE_ASKED = "resize_asked"
"""The ledger's word for a planned resize."""


def _rest() -> BackoffPolicy:
    return BackoffPolicy(first_s=120.0, factor=2.0, cap_s=3600.0, jitter_fraction=0.0)


@dataclass(frozen=True, kw_only=True)
class ResizePolicy:
    """How eager a run is to grow."""

    look_s: float = 2.0
    """How often the cluster is looked at, while workers run and while room is waited for."""
    steady_s: float = 10.0
    """Room must have been there for so long, at each look."""
    settle_s: float = 5.0
    """Before an attempt: the workers of the one before may still hold what they had; so long more are waited for."""
    calm_s: float = 1800.0
    """A growth that held for so long was no mistake, and former ones are forgotten."""
    rest: BackoffPolicy = field(default_factory=_rest)
    """After a growth that did not hold: no other for so long, longer with each."""
    costs_s: float = 60.0
    """All workers save, leave and start anew; so long nothing is trained."""
    pays_back_s: float = 3600.0
    """Within so long the added workers must have done what the resize has cost: one more worker is worth it for up to
    59, and of two thousand 35 must come together. Whatever starts a large run anew takes them up for nothing."""

    def __post_init__(self) -> None:
        """Refuse looks without a pause, and waits that never end."""
        if not self.look_s > 0.0:
            raise ConfigError(f"look_s is {self.look_s}; use a positive number of seconds, or a core does nothing else")
        for name in ("steady_s", "settle_s", "calm_s"):
            if not getattr(self, name) >= 0.0:
                raise ConfigError(f"{name} is {getattr(self, name)}; use 0 or more seconds")
        if not 0.0 <= self.costs_s < self.pays_back_s:
            raise ConfigError(
                f"costs_s is {self.costs_s} and pays_back_s {self.pays_back_s}; what a resize costs must be less than "
                "the time in which it pays"
            )

    def worth(self, workers: int, more: int) -> bool:
        """Whether so many more pay back what all of them together lose by the resize."""
        return more * (self.pays_back_s - self.costs_s) >= workers * self.costs_s


class Growth:
    """Remembers, over the attempts of one run, what became of having grown. Times are of one monotonic clock."""

    def __init__(self, policy: ResizePolicy, most: int) -> None:
        self._policy = policy
        self._most = most
        self._workers: int | None = None
        self._grown_s: float | None = None
        self._asked = False
        self._failed = 0
        self._rests_until_s = float("-inf")
        self._spare: int | None = None
        self._since_s = 0.0

    def began(self, workers: int, now_s: float) -> None:
        """An attempt begins with so many workers."""
        before, asked = self._workers, self._asked
        self._workers, self._spare, self._asked = workers, None, False
        if before is None:
            return
        if workers > before:
            self._grown_s = now_s
        elif asked or (workers < before and self._grown_s is not None):
            self._did_not_hold(now_s)

    def _did_not_hold(self, now_s: float) -> None:
        """A run that has never grown does not come here: that a node goes says nothing of one that comes."""
        if self._grown_s is not None and now_s - self._grown_s >= self._policy.calm_s:
            self._failed = 0
        self._failed += 1
        self._grown_s = None
        self._rests_until_s = now_s + self._policy.rest.wait_s(self._failed, random.Random(0))

    def look(self, spare: int | None, now_s: float) -> int | None:
        """Judge one look at the cluster.

        Args:
            spare: workers that fit beside those that run; None: not known, which is no room.
            now_s: when.

        Returns:
            The number of workers to go on with, when it is time to grow.
        """
        workers = self._workers
        if workers is None or spare is None or spare < 1 or workers >= self._most:
            self._spare = None
            return None
        if self._spare is None:
            self._since_s = now_s
        self._spare = spare if self._spare is None else min(self._spare, spare)
        if now_s < self._rests_until_s or now_s - self._since_s < self._policy.steady_s:
            return None
        target = min(self._most, workers + self._spare)
        if not self._policy.worth(workers, target - workers):
            self._spare, self._since_s = spare, now_s  # there may be more by now than there was at each look before
            return None
        self._asked = True
        return target
