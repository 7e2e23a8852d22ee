"""The rungs of the example: LightGBM where it knows the words, rules for the rest. Others are in ``plain_rungs.py``.

XGBoost (``models/xgb_intents.py``) and scikit-learn's linear models (``models/linear_text.py``) stand on the same rung.
"""

from __future__ import annotations

from typing import Protocol

from failsoft.artifacts.bundle import Bundle, Role
from failsoft.errors import ConfigError
from failsoft.models.gbdt import GbdtIntent
from failsoft.models.hashed_words import GbdtAnswer
from failsoft.models.rules import RulesEngine
from failsoft.serving.seam import Rung, RungAnswer
from failsoft.serving.web.messages import Entity, Source


class AnswersTexts(Protocol):
    """A quick model of texts: ``GbdtIntent``, ``XgbIntent``, ``LinearText``, or one like them."""

    def predict_one(self, text: str, /) -> GbdtAnswer | None:
        """The likeliest class of any string; None when too little of it is known to say anything."""
        ...


class GbdtRung:
    """Answers when enough of the text was seen in training and the trees agree.

    Args:
        model: the loaded model.
        min_known_fraction: share of the text's features that training has seen. Below it the answer would rest on
            absent features, which the trees read as zeros and are very sure about.
        min_confidence: below it the next rung answers.
        name: who answers; callers read it as ``source``.
    """

    def __init__(
        self,
        model: AnswersTexts,
        *,
        min_known_fraction: float = 0.5,
        min_confidence: float = 0.5,
        name: str = Source.GBDT,
    ) -> None:
        for field, value in (("min_known_fraction", min_known_fraction), ("min_confidence", min_confidence)):
            if not 0.0 <= value <= 1.0:
                raise ConfigError(f"{field} is {value}; it is a fraction from 0 to 1")
        self.name = name
        self._model = model
        self._min_known_fraction = min_known_fraction
        self._min_confidence = min_confidence

    def answer(self, text: str) -> RungAnswer | None:
        """The trees' intent, without entities; None when it would be a guess."""
        found = self._model.predict_one(text)
        if found is None or not found.known_fraction >= self._min_known_fraction:
            return None
        if not found.confidence >= self._min_confidence:
            return None
        return RungAnswer(source=self.name, output=found.intent, confidence=found.confidence)


class RulesRung:
    """Answers any text; claims no confidence."""

    name = Source.RULES

    def __init__(self, engine: RulesEngine) -> None:
        self._engine = engine

    def answer(self, text: str) -> RungAnswer:
        """The first rule that fits, else the default answer."""
        found = self._engine.answer(text)
        entities = tuple(
            Entity(start=span.start, end=span.end, slot=span.slot, text=text[span.start : span.end])
            for span in found.spans
        )
        return RungAnswer(source=self.name, output=found.intent, entities=entities)


def trees_and_rules(bundle: Bundle) -> tuple[Rung, ...]:
    """The example's rungs: LightGBM, then rules.

    Raises:
        DamagedArtifactError: a part is absent.
    """
    gbdt = GbdtRung(GbdtIntent.load(bundle.part(Role.GBDT)))
    return gbdt, RulesRung(RulesEngine.load(bundle.part(Role.RULES)))
