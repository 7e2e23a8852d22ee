"""What to do when going back once did not help: harder remedies, one after the other. Pure; the recovery acts.

*The same place*: the run asks for a remedy again before ``settled_after_steps`` updates were applied since it went back
last. Once they are applied, the place is behind it and the ladder starts anew. The default is the interval between
snapshots: by then there is a newer state to go back to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from failsoft.errors import ConfigError


class Remedy(StrEnum):
    """What may help a run that refuses step after step, or whose state fell ill."""

    SNAPSHOT = "the RAM snapshot"
    SNAPSHOT_SLOWER = "the RAM snapshot and a lower learning rate"
    DISK = "the checkpoint before it, still at the lower learning rate"
    STOP = "stop"


class Poisoned(StrEnum):
    """What becomes of the batches between the moment that one goes back to and the trouble."""

    SKIP = "skip"
    """They are passed over and leave dead letters: no batch is met twice."""
    REPLAY = "replay"
    """They are met again; one that is refused in two passes is passed over for good."""


@dataclass(frozen=True, kw_only=True)
class EscalationPolicy:
    """Which remedies, in which order, and when a place counts as passed."""

    ladder: tuple[Remedy, ...] = (Remedy.SNAPSHOT, Remedy.SNAPSHOT_SLOWER, Remedy.DISK)
    """Tried in this order at one place; then the run stops."""
    settled_after_steps: int = 100
    """Updates applied since the last way back after which new trouble is at another place."""
    lower_rate_factor: float = 0.5
    """What ``SNAPSHOT_SLOWER`` multiplies the learning rate by; the guard's relief raises it again, step by step."""

    def __post_init__(self) -> None:
        """Refuse a ladder without rungs, and a rate that rises."""
        if not self.ladder or Remedy.STOP in self.ladder:
            raise ConfigError(f"ladder is {self.ladder}; name the remedies to try, the stop after them goes unsaid")
        if self.settled_after_steps < 1:
            raise ConfigError(f"settled_after_steps is {self.settled_after_steps}; use 1 or more")
        if not 0.0 < self.lower_rate_factor <= 1.0:
            raise ConfigError(f"lower_rate_factor is {self.lower_rate_factor}; use a share above 0 and up to 1")


@dataclass(frozen=True, kw_only=True)
class Tried:
    """A remedy that was tried at this place."""

    remedy: Remedy
    position: int
    """Where the trouble was."""
    why: str
    """Which trouble, and what came of the remedy if it could not be had."""

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> Tried:
        """As a checkpoint holds it."""
        return cls(remedy=Remedy(entry["remedy"]), position=int(entry["position"]), why=str(entry["why"]))

    def in_words(self) -> str:
        """For the diagnosis."""
        return f"{self.remedy} (at position {self.position}: {self.why})"


def next_remedy(history: Sequence[Tried], policy: EscalationPolicy) -> Remedy:
    """The rung after those that were tried at this place; ``STOP`` above the last."""
    return policy.ladder[len(history)] if len(history) < len(policy.ladder) else Remedy.STOP
