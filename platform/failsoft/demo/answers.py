"""What a client saw, answer by answer, and what it adds up to. Pure: records in, numbers out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

FALLBACKS = frozenset({"gbdt", "rules", "previous"})


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One request as its client saw it."""

    sent_s: float
    """Client's monotonic time of sending."""
    latency_ms: float
    status: int
    """HTTP status; 0 when no answer came at all."""
    phase: str
    source: str | None = None
    degrade_reason: str | None = None
    stage: str | None = None
    epoch: int | None = None
    confidence: float | None = None
    refused_confidence: float | None = None
    """Of the model's own answer, when a net refused it."""
    intent: str | None = None
    expected: str | None = None

    @property
    def lost(self) -> bool:
        """No useful answer reached the user."""
        return self.status != 200

    @property
    def own_confidence(self) -> float | None:
        """How sure the model itself was, whether or not its answer was used; None when it was not asked."""
        return self.confidence if self.source in ("primary", "canary") else self.refused_confidence

    @property
    def right(self) -> bool:
        """The answer was the intent that the text means."""
        return not self.lost and self.intent == self.expected


@dataclass(frozen=True, kw_only=True)
class PhaseNumbers:
    """One phase of traffic, summed up."""

    phase: str
    requests: int
    lost: int
    right_fraction: float
    sources: dict[str, float]
    """Share of the answers by each source."""
    p50_ms: float
    p99_ms: float
    mean_confidence: float | None
    """Mean confidence of the model's own answers, refused ones included; None when it gave none."""


def phase_numbers(phase: str, seen: Sequence[Seen]) -> PhaseNumbers | None:
    """Sum up one phase; None if no request fell into it."""
    mine = [one for one in seen if one.phase == phase]
    if not mine:
        return None
    answered = Counter(one.source or "none" for one in mine if not one.lost)
    latencies = [one.latency_ms for one in mine]
    confidences = [own for one in mine if (own := one.own_confidence) is not None]
    return PhaseNumbers(
        phase=phase,
        requests=len(mine),
        lost=sum(one.lost for one in mine),
        right_fraction=sum(one.right for one in mine) / len(mine),
        sources={source: count / len(mine) for source, count in answered.most_common()},
        p50_ms=percentile(latencies, 0.50),
        p99_ms=percentile(latencies, 0.99),
        mean_confidence=sum(confidences) / len(confidences) if confidences else None,
    )


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which ``share`` of ``values`` lie (nearest rank).

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("no values, so no percentile")
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def stage_timeline(seen: Sequence[Seen]) -> list[tuple[float, str]]:
    """When each stage was first seen in an answer, in order of sending; a stage that comes back is listed again.

    Answers overlap and replicas follow a plan milliseconds apart: an answer of an older plan never sets it back. A
    replica that trips by itself degrades before the plan has a new epoch, so of one epoch DEGRADED is the later stage.
    """
    timeline: list[tuple[float, str]] = []
    newest = (-1, False)
    for one in sorted(seen, key=lambda answer: answer.sent_s + answer.latency_ms / 1000):
        if one.stage is None or one.epoch is None or (one.epoch, one.stage == "degraded") < newest:
            continue
        newest = (one.epoch, one.stage == "degraded")
        if not timeline or timeline[-1][1] != one.stage:
            timeline.append((one.sent_s, one.stage))
    return timeline
