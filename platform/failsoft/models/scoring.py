"""How good answers are: intent accuracy, and slot F1 of exact spans with the exact slot (as conlleval)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from failsoft.errors import CorpusError
from failsoft.models.corpus import Span, Utterance


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """One answer."""

    intent: str
    spans: tuple[Span, ...] = ()


@dataclass(frozen=True, kw_only=True)
class IntentScore:
    """How one intent fared."""

    support: int
    accuracy: float


@dataclass(frozen=True, kw_only=True)
class Quality:
    """Quality on a set of utterances; fractions 0..1. Without any slot in the gold and the answers the F1 is 1."""

    samples: int
    intent_accuracy: float
    slot_precision: float
    slot_recall: float
    slot_f1: float
    """Micro average over all spans."""
    per_intent: dict[str, IntentScore]

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return asdict(self)


def evaluate(utterances: Sequence[Utterance], predictions: Sequence[Prediction]) -> Quality:
    """Score answers against what the utterances say.

    Raises:
        CorpusError: there is nothing to score, or not one prediction per utterance.
    """
    if not utterances or len(utterances) != len(predictions):
        raise CorpusError(
            f"{len(predictions)} predictions for {len(utterances)} utterances; give one each, and at least one"
        )
    pairs = list(zip(utterances, predictions, strict=True))
    support = Counter(truth.intent for truth, _ in pairs)
    right = Counter(truth.intent for truth, answer in pairs if truth.intent == answer.intent)
    hits = sum(len(set(truth.spans) & set(answer.spans)) for truth, answer in pairs)
    wanted = sum(len(set(truth.spans)) for truth, _ in pairs)
    given = sum(len(set(answer.spans)) for _, answer in pairs)
    return Quality(
        samples=len(pairs),
        intent_accuracy=right.total() / len(pairs),
        slot_precision=hits / given if given else 1.0,
        slot_recall=hits / wanted if wanted else 1.0,
        slot_f1=2 * hits / (given + wanted) if given + wanted else 1.0,
        per_intent={
            intent: IntentScore(support=count, accuracy=right[intent] / count)
            for intent, count in sorted(support.items())
        },
    )
