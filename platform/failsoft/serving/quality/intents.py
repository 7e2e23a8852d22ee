"""The example's kind: an intent from its logits, and entities beside it."""

# B texts, C intents

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import compress

from failsoft.models.scores import ScoreBatch, ScoredSpan
from failsoft.serving.defence import Judgement, QualityPolicy, credible_spans, judge
from failsoft.serving.seam import Judged, Measures, Quality
from failsoft.serving.web.messages import Entity


@dataclass(frozen=True, kw_only=True)
class IntentsAndEntities(Quality):
    """The intent is the output and decides; entities that are not credible are left out."""

    policy: QualityPolicy = field(default_factory=QualityPolicy)

    def judge(self, scores: ScoreBatch, *, rows: int, measures: Measures) -> list[Judged]:
        """See :class:`failsoft.serving.seam.Quality`. A release without a fitted ``temperature`` is never believed."""
        temperature = measures.get("temperature", math.nan)
        judgements = judge(scores.intent_logits_BC, temperature, self.policy, rows=rows, classes=len(scores.intents))
        return [self._judged(scores, row, judgement) for row, judgement in enumerate(judgements)]

    def _judged(self, scores: ScoreBatch, row: int, judgement: Judgement) -> Judged:
        intent = scores.intents[judgement.intent_index] if scores.intents else ""
        with_spans = judgement.usable and row < len(scores.spans)
        return Judged(
            output=intent,
            confidence=judgement.confidence,
            outcome=judgement.outcome,
            usable=judgement.usable,
            reason=judgement.reason,
            entities=_entities(scores.spans[row], self.policy) if with_spans else (),
            label=intent,
            oov_share=_oov_share(scores, row),
            words=_words(scores, row),
            entropy=judgement.entropy,
            margin=judgement.margin,
        )


def _oov_share(scores: ScoreBatch, row: int) -> float:
    """NaN where an ill model left it out, or gave what is no share."""
    try:
        share = float(scores.oov_fraction_B[row])
    except (IndexError, TypeError, ValueError):
        return math.nan
    return share if 0.0 <= share <= 1.0 else math.nan


def _words(scores: ScoreBatch, row: int) -> float:
    """NaN where an ill model left it out, or gave what is no count."""
    try:
        count = float(scores.counts_B[row])
    except (IndexError, TypeError, ValueError):
        return math.nan
    return count if 0.0 <= count < math.inf else math.nan


def _entities(spans: Sequence[ScoredSpan], policy: QualityPolicy) -> tuple[Entity, ...]:
    credible = credible_spans(spans, policy)
    return tuple(
        Entity(start=span.start, end=span.end, slot=span.slot, text="", confidence=span.confidence)
        for span in compress(spans, credible)
        if 0 <= span.start < span.end
    )
