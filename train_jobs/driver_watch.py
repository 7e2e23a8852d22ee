"""How long the process that holds a run's workers may give no sign of life. Judgement only; its parent acts.

There are two signs. The process beats once a second, from a thread of its own: no beat means that it is frozen, or that
Python in it stands still. And its orders move: an attempt by what its workers leave in the run's folder, any other one
by being answered. Time is counted by the one who looks, from changes that it sees itself: no time that another process
wrote is ever compared.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from failsoft.errors import ConfigError

_LIMITS = {
    "start": "start_s",
    "excluded": "preflight_s",
    "rooms": "rooms_s",
    "wish": "rooms_s",
    "attempt": "attempt_s",
    "finish": "finish_s",
}
"""The field with the limit of each order."""


@dataclass(frozen=True, kw_only=True)
class DriverWatchPolicy:
    """A limit for each thing that a driver process does."""

    silent_s: float = 120.0
    """Without a beat. A library that is loaded may hold Python up for seconds, a busy machine for longer."""
    start_s: float = 7200.0
    """Reading and preparing the data, and connecting to Ray."""
    preflight_s: float = 1800.0
    """Looking at the nodes."""
    rooms_s: float = 600.0
    """Asking Ray what its cluster has, or for more; half a second as a rule."""
    attempt_s: float = 9000.0
    """In which no worker began a batch or said how far it is. The third line, behind the watchdog of each worker and
    the one in Ray's controller, so it is longer than any of their limits."""
    finish_s: float = 6.0 * 3600.0
    """Evaluation and release."""
    look_s: float = 1.0
    """How often its parent looks."""
    stacks_s: float = 5.0
    """How long it has to leave its stacks before it is killed."""

    def __post_init__(self) -> None:
        """Refuse limits that nothing could keep."""
        for name in ("silent_s", "look_s", "stacks_s", *sorted(set(_LIMITS.values()))):
            if not 0.0 < getattr(self, name) < math.inf:
                raise ConfigError(f"{name} is {getattr(self, name)}; use a positive number of seconds")
        if not 4.0 * self.look_s <= self.silent_s:
            raise ConfigError(
                f"silent_s is {self.silent_s} with a look each {self.look_s} s; use at least four looks, a beat comes "
                "once a second"
            )

    def limit_s(self, order: str) -> float:
        """Seconds that an order may take; for an attempt, without anything moving."""
        return float(getattr(self, _LIMITS[order]))


class Vigil:
    """Counts, for one order, how long no sign of life came. A look that comes late counts for two looks at most.

    So a supervisor that was itself frozen and thawed (a moved machine) kills nobody for it.
    """

    def __init__(self, order: str, policy: DriverWatchPolicy) -> None:
        self._order = order
        self._policy = policy
        self._looked_s: float | None = None
        self._beats = -1
        self._signs: object = None
        self._silent_s = 0.0
        self._still_s = 0.0

    def look(self, now_s: float, *, beats: int, signs: object) -> str | None:
        """Look once, at monotonic time ``now_s``.

        Args:
            now_s: of the one who looks.
            beats: heard so far.
            signs: another value whenever something moved.

        Returns:
            Why it counts as hung, or None.
        """
        before_s = now_s if self._looked_s is None else self._looked_s
        gap_s = min(now_s - before_s, 2.0 * self._policy.look_s)
        self._silent_s = 0.0 if beats != self._beats else self._silent_s + gap_s
        self._still_s = 0.0 if signs != self._signs else self._still_s + gap_s
        self._looked_s, self._beats, self._signs = now_s, beats, signs
        if not self._silent_s <= self._policy.silent_s:
            return f"no beat for {self._silent_s:.0f} s during its {self._order}: it is frozen, or Python stands still"
        if not self._still_s <= self._policy.limit_s(self._order):
            return f"nothing moved for {self._still_s:.0f} s during its {self._order}"
        return None
