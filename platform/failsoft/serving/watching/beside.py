"""Copies beside the live answers that they were made of: how sure each side was, and how long it took. Only shown.

Sums and ten bins travel, whatever the answers are: a report stays small, and gateways add up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from operator import add
from typing import Any

from failsoft.errors import ConfigError
from failsoft.serving.plan.plan import known_fields

BINS = 10
_NONE = (0,) * BINS


@dataclass(frozen=True, kw_only=True)
class Beside:
    """Pairs of a copy's and its live answer's confidence and time, added up. Add two with ``+``."""

    answers: int = 0
    """Pairs in which both sides have a confidence."""
    confidence: float = 0.0
    live_confidence: float = 0.0
    latency_ms: float = 0.0
    """From asking the model to its answer, of the copies."""
    live_latency_ms: float = 0.0
    """Time inside the gateway, of the live answers."""
    bins: tuple[int, ...] = _NONE
    """Copies by confidence, in tenths."""
    live_bins: tuple[int, ...] = _NONE

    def __post_init__(self) -> None:
        """Refuse sums that could not be: they would spoil all that they are added to."""
        sums = (self.confidence, self.live_confidence, self.latency_ms, self.live_latency_ms)
        whole = all(len(bins) == BINS and min(bins) >= 0 for bins in (self.bins, self.live_bins))
        if not (whole and sum(self.bins) == sum(self.live_bins) == self.answers):
            raise ConfigError(f"{self.answers} pairs of answers do not fill bins of {self.bins} and {self.live_bins}")
        if not all(0.0 <= value < math.inf for value in sums):
            raise ConfigError(f"sums over pairs of answers are {sums}; each is a number from 0 up")

    @classmethod
    def pair(cls, *, confidence: float, live_confidence: float, latency_ms: float, live_latency_ms: float) -> Beside:
        """One copy and its live answer; nothing when one of them has no honest confidence, or a time is none."""
        shares, times = (confidence, live_confidence), (latency_ms, live_latency_ms)
        if not (all(0.0 <= share <= 1.0 for share in shares) and all(0.0 <= ms < math.inf for ms in times)):
            return NOTHING_BESIDE
        return cls(
            answers=1,
            confidence=confidence,
            live_confidence=live_confidence,
            latency_ms=latency_ms,
            live_latency_ms=live_latency_ms,
            bins=_bin_of(confidence),
            live_bins=_bin_of(live_confidence),
        )

    def __add__(self, other: Beside) -> Beside:
        """Both together."""
        if not other.answers:
            return self
        both = [(one.name, getattr(self, one.name), getattr(other, one.name)) for one in fields(self)]
        sums: dict[str, Any] = {name: _sum(mine, more) for name, mine, more in both}
        return Beside(**sums)

    def as_json(self) -> dict[str, Any]:
        """Plain values that :func:`beside_of` reads back."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return values | {"bins": list(self.bins), "live_bins": list(self.live_bins)}

    def status(self) -> dict[str, Any]:
        """Means, the shift of confidence and its divergence, for people; only the count without any pair."""
        if not self.answers:
            return {"pairs": 0}
        each = 1.0 / self.answers
        return {
            "pairs": self.answers,
            "confidence": round(self.confidence * each, 4),
            "live_confidence": round(self.live_confidence * each, 4),
            "confidence_shift": round((self.confidence - self.live_confidence) * each, 4),
            "confidence_kl": round(divergence(self.live_bins, self.bins), 4),
            "latency_ms": round(self.latency_ms * each, 2),
            "live_latency_ms": round(self.live_latency_ms * each, 2),
        }


NOTHING_BESIDE = Beside()


def beside_of(body: Mapping[str, Any] | None) -> Beside:
    """Read what :meth:`Beside.as_json` gave; raises what a wrong value raises."""
    if not body:
        return NOTHING_BESIDE
    known = known_fields(Beside, body).items()
    values: dict[str, Any] = {name: tuple(value) if "bins" in name else value for name, value in known}
    return Beside(**values)


def divergence(live: Sequence[int], copies: Sequence[int]) -> float:
    """KL(live ‖ copies) in nats between two histograms; half a count is added to each bin, so that none is empty."""
    live_total, copies_total = sum(live) + len(live) / 2, sum(copies) + len(copies) / 2
    shares = [((a + 0.5) / live_total, (b + 0.5) / copies_total) for a, b in zip(live, copies, strict=True)]
    return max(0.0, sum(p * math.log(p / q) for p, q in shares))


def _sum(mine: Any, more: Any) -> Any:
    return tuple(map(add, mine, more)) if isinstance(mine, tuple) else mine + more


def _bin_of(confidence: float) -> tuple[int, ...]:
    place = min(BINS - 1, int(confidence * BINS))
    return tuple(int(number == place) for number in range(BINS))
