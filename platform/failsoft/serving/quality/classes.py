"""Classification from raw logits: finite, calibrated top-1 confidence, normalised entropy, margin of the two best."""

# B items, C classes

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from failsoft.errors import ConfigError
from failsoft.serving.defence import Judgement, QualityPolicy, judge
from failsoft.serving.seam import Judged, Measures, Quality


@dataclass(frozen=True, kw_only=True)
class Classification(Quality):
    """The most probable class is the output.

    Scores are ``logits_BC``, or a dict that holds them under ``logits``.
    """

    labels: tuple[str, ...] | None = None
    """Names of the classes; other columns than these are no answer. None: the output is the class's number."""
    policy: QualityPolicy = field(default_factory=QualityPolicy)

    def __post_init__(self) -> None:
        """Refuse names that can't be told apart."""
        if self.labels is not None and (len(self.labels) < 1 or len(set(self.labels)) < len(self.labels)):
            raise ConfigError(f"labels are {self.labels}; name each class once")

    def judge(self, scores: Any, *, rows: int, measures: Measures) -> list[Judged]:
        """Without a fitted ``temperature`` the logits are taken as they are; fit one for an overconfident model."""
        logits_BC: Any = scores.get("logits") if isinstance(scores, Mapping) else scores
        classes = None if self.labels is None else len(self.labels)
        temperature = measures.get("temperature", 1.0)
        return [self._judged(row) for row in judge(logits_BC, temperature, self.policy, rows=rows, classes=classes)]

    def _judged(self, judgement: Judgement) -> Judged:
        answered = judgement.confidence >= 0.0
        label = str(judgement.intent_index) if self.labels is None else self.labels[judgement.intent_index]
        output: Any = judgement.intent_index if self.labels is None else label
        return Judged(
            output=output if answered else None,
            confidence=judgement.confidence,
            outcome=judgement.outcome,
            usable=judgement.usable,
            reason=judgement.reason,
            label=label if answered else "",
            entropy=judgement.entropy,
            margin=judgement.margin,
        )
