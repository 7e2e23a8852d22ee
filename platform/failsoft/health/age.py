"""How long something has not changed, by one process's own clock: two nodes' clocks are never compared."""

from __future__ import annotations

from failsoft.health.clock import Clock


class Age:
    """Tells it at each look; what came before the first one is not known, so an age is at least what it says."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._value: object = None
        self._since_s = clock.monotonic_s()

    def of(self, value: object) -> float:
        """Seconds since it was last another value, or since this was made."""
        now_s = self._clock.monotonic_s()
        if value != self._value:
            self._value, self._since_s = value, now_s
        return now_s - self._since_s
