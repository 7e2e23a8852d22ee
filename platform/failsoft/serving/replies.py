"""What a model replica sends to a gateway, and what the gateway makes of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

from failsoft.models.scores import ScoreBatch, ScoredSpan
from failsoft.serving.defence import Judgement, QualityPolicy, credible_spans, judge
from failsoft.serving.messages import Entity
from failsoft.serving.request import Reading


@dataclass(frozen=True, kw_only=True)
class ModelReply:
    """Raw scores, and which load of which release they come from. The gateway judges: a model is no judge of itself."""

    scores: ScoreBatch
    temperature: float
    """The release's calibration."""
    release: str
    load_generation: int
    took_ms: float = math.nan
    """The model's own time for the whole batch, without any queue; NaN: not measured."""

    def __reduce__(self) -> tuple[Any, ...]:
        """How it is pickled: Ray's pickler needs longer for the fields of a dataclass than for a tuple."""
        return _sent, (self.scores, self.temperature, self.release, self.load_generation, self.took_ms)


def _sent(scores: ScoreBatch, temperature: float, release: str, load_generation: int, took_ms: float) -> ModelReply:
    return ModelReply(
        scores=scores, temperature=temperature, release=release, load_generation=load_generation, took_ms=took_ms
    )


def read_reply(reply: ModelReply, policy: QualityPolicy, *, texts: int) -> list[Reading]:
    """One judged reading for each of ``texts`` texts, in order; whatever does not fit them is unusable."""
    scores = reply.scores
    judgements = judge(scores.intent_logits_BC, reply.temperature, policy, rows=texts, classes=len(scores.intents))
    return [_reading(reply, row, judgement, policy, together=texts) for row, judgement in enumerate(judgements)]


def _oov_share(scores: ScoreBatch, row: int) -> float:
    """NaN where an ill model left it out, or gave what is no share."""
    try:
        share = float(scores.oov_fraction_B[row])
    except (IndexError, TypeError, ValueError):
        return math.nan
    return share if 0.0 <= share <= 1.0 else math.nan


def _reading(reply: ModelReply, row: int, judgement: Judgement, policy: QualityPolicy, *, together: int) -> Reading:
    intents, spans = reply.scores.intents, reply.scores.spans
    return Reading(
        intent=intents[judgement.intent_index] if intents else "",
        confidence=judgement.confidence,
        entities=_entities(spans[row], policy) if judgement.usable and row < len(spans) else (),
        release=reply.release,
        load_generation=reply.load_generation,
        outcome=judgement.outcome,
        usable=judgement.usable,
        why=judgement.reason,
        model_ms=reply.took_ms,
        together=together,
        oov_share=_oov_share(reply.scores, row),
    )


def _entities(spans: Sequence[ScoredSpan], policy: QualityPolicy) -> tuple[Entity, ...]:
    credible = credible_spans([span.confidence for span in spans], policy)
    return tuple(
        Entity(start=span.start, end=span.end, slot=span.slot, text="", confidence=span.confidence)
        for span in compress(spans, credible)
        if 0 <= span.start < span.end
    )
