"""How fast a release is read beside live traffic: in small pieces, with pauses that grow as the machine gets busy.

A thread that steps back (:mod:`failsoft.serving.giving_way`) still holds a core for as long as nobody takes it, fills
the caches, and wakes up whoever shares its process. So it works for a part of the time only. A piece that took longer,
since others had the core or the disk was slow, is followed by a longer pause. Pauses are bounded all the same: on a
machine that is full for ever a release must come some day, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from failsoft.errors import ConfigError
from failsoft.health.clock import Clock
from failsoft.serving.plan.plan import Colour, RoutingPlan

_SHORTEST_S = 0.001
"""A pause that is shorter is put off: waking up costs something itself …"""
_LONGEST_S = 0.1
"""… and after one that is so long it is looked again whether anybody is to be spared."""


@dataclass(frozen=True, kw_only=True)
class LoadingPolicy:
    """How a model replica reads a release while another model answers callers."""

    share: float = 0.2
    """It works for this share of the time and pauses for the rest; 1: no pauses."""
    pauses_at_most_s: float = 20.0
    """All pauses of one load together; after that it reads on as fast as it can, and the ledger says so."""

    def __post_init__(self) -> None:
        """Refuse a share that would never end, or pauses that are no time."""
        if not 0.01 <= self.share <= 1.0:
            raise ConfigError(f"share of loading is {self.share}; use 0.01 to 1 of the time (0.2 suits)")
        if not 0.0 <= self.pauses_at_most_s < math.inf:
            raise ConfigError(f"pauses_at_most_s is {self.pauses_at_most_s}; use 0 (none) or some seconds, 20 suits")


def spares(plan: RoutingPlan, colour: Colour) -> bool:
    """Whether somebody is to be spared while a colour loads: another model answers callers, and this one does not yet.

    At a first start, and when only the fallback answers, callers gain by a model that is there soon.
    """
    return plan.stand_in not in (None, colour) and not plan.lets_answer(colour)


class Pace:
    """Of one load. Call :meth:`beat` in the thread that loads, after each small piece.

    Args:
        policy: how much of the time it works.
        clock: measures work, and waits.
        spare: whether anybody is to be spared; asked anew before each pause.
        on_hurry: told in words, once, when the pauses are used up.
    """

    def __init__(
        self, policy: LoadingPolicy, clock: Clock, *, spare: Callable[[], bool], on_hurry: Callable[[str], object]
    ) -> None:
        self._policy, self._clock, self._spare, self._on_hurry = policy, clock, spare, on_hurry
        self._resumed_s = clock.monotonic_s()
        self.paused_s = 0.0
        """All pauses so far."""
        self._hurries = policy.pauses_at_most_s == 0.0 or policy.share >= 1.0

    def beat(self) -> None:
        """Wait, if it is time to."""
        if self._hurries:
            return
        worked_s = self._clock.monotonic_s() - self._resumed_s
        pause_s = min(worked_s * (1.0 / self._policy.share - 1.0), _LONGEST_S)
        if pause_s < _SHORTEST_S:
            return
        if self._spare():
            self._pause(pause_s)
        self._resumed_s = self._clock.monotonic_s()

    def _pause(self, pause_s: float) -> None:
        began_s = self._clock.monotonic_s()
        self._clock.sleep_s(pause_s)
        self.paused_s += self._clock.monotonic_s() - began_s  # a busy machine wakes up whom nobody waits for late
        if self.paused_s >= self._policy.pauses_at_most_s:
            self._hurries = True
            self._on_hurry(
                f"pauses beside live traffic took {self.paused_s:.1f} s, their bound: the rest is read without them"
            )
