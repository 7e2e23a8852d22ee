"""Which replicas follow the plan, and how far: what the controller hears from their long polls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from failsoft.health.clock import Clock

_FORGET_S = 60.0
"""A replica that was silent for so long is gone; it calls at least every ten seconds."""
_MAX = 4096


@dataclass(frozen=True, kw_only=True)
class _Heard:
    epoch: int
    at_s: float


class RollCall:
    """Remembers the newest plan that each replica said it has. For people: nothing is decided by it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heard: dict[str, _Heard] = {}
        self._held: dict[str, dict[str, Any]] = {}

    def heard(self, name: str, epoch: int) -> None:
        """A replica says which plan it has. Those without a name, or a plan, tell nothing."""
        if not name or epoch < 0:
            return
        self._heard.pop(name, None)
        self._heard[name] = _Heard(epoch=epoch, at_s=self._clock.monotonic_s())
        if len(self._heard) > _MAX:  # replicas come and go under new names for as long as this lives
            self._heard.pop(next(iter(self._heard)))

    def holds(self, name: str, held: Mapping[str, Any]) -> None:
        """A model replica says what it has loaded."""
        self._held[name] = dict(held)

    def status(self) -> dict[str, Any]:
        """Replicas and models, for people."""
        replicas = self.replicas()
        self._held = {name: held for name, held in self._held.items() if name in replicas}
        return {"replicas": replicas, "models": dict(self._held)}

    def replicas(self) -> dict[str, dict[str, Any]]:
        """For each replica that is not gone the plan it said it has, and how long ago."""
        now_s = self._clock.monotonic_s()
        self._heard = {name: heard for name, heard in self._heard.items() if now_s - heard.at_s <= _FORGET_S}
        return {
            name: {"epoch": heard.epoch, "silent_s": round(now_s - heard.at_s, 1)}
            for name, heard in sorted(self._heard.items())
        }
