"""Malformed traffic against a trained model, with the nets before it off and on."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from failsoft.artifacts.bundle import Baseline
from failsoft.health.window import Outcome
from failsoft.models.corpus import Corpus, Span, Utterance
from failsoft.models.malformed import RATE, Kind, Malformed, malformed
from failsoft.models.predictor import IntentNerPredictor, predictions_of
from failsoft.models.scoring import Prediction, Quality, evaluate
from failsoft.release.baseline import measure
from failsoft.release.calibrate import fit_temperature
from failsoft.serving.intake.sanitizer import Cleaned, TextPolicy, sanitize
from failsoft.serving.quality.intents import IntentsAndEntities

OUT_OF_SCOPE = "oos"
"""What CLINC150 calls a text that is about none of its intents."""
Back = Callable[[Span], Span]


class Answered(NamedTuple):
    """What the gateway knows of one answered request."""

    intent: str
    outcome: Outcome
    usable: bool
    oov_share: float
    repaired: bool


@dataclass(frozen=True, kw_only=True)
class Run:
    """One pass over all texts."""

    quality: Quality
    answers: tuple[Answered, ...]

    @property
    def repaired_fraction(self) -> float:
        """Share of texts that had to be mended."""
        return float(np.mean([one.repaired for one in self.answers]))

    @property
    def weak_fraction(self) -> float:
        """Share of answers that confidence calls weak."""
        return float(np.mean([one.outcome is Outcome.WEAK for one in self.answers]))


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A model, how it behaves on its validation texts, and the texts it is tried on."""

    predictor: IntentNerPredictor
    temperature: float
    baseline: Baseline
    utterances: tuple[Utterance, ...]
    policy: TextPolicy

    def clean(self) -> Run:
        """The texts as they are, through the nets: what those mend of them counts as repaired, as in serving."""
        return self.nets_on(self.malformed(Kind.UNSEEN, 0, rate=0.0))

    def raw(self) -> Run:
        """The same without the nets."""
        return self.nets_off(self.malformed(Kind.UNSEEN, 0, rate=0.0))

    def malformed(self, kind: Kind, seed: int, *, rate: float = RATE) -> list[Malformed]:
        """The texts as a broken sender writes them."""
        chance = random.Random(seed)
        return [malformed(utterance.text, kind, chance, rate=rate) for utterance in self.utterances]

    def nets_off(self, made: Sequence[Malformed]) -> Run:
        """The model gets what came."""
        return self._ask([one.text for one in made], [one.to_source for one in made])

    def nets_on(self, made: Sequence[Malformed]) -> Run:
        """The sanitizer stands before the model, and spans find their way back through it."""
        cleaned = [sanitize(one.text, self.policy) for one in made]
        backs = [_through(one, net) for one, net in zip(made, cleaned, strict=True)]
        repaired = [net.is_malformed for net in cleaned]
        return self._ask([net.text for net in cleaned], backs, repaired)

    def _ask(self, texts: Sequence[str], backs: Sequence[Back], repaired: Sequence[bool] | None = None) -> Run:
        scores = self.predictor.predict(texts)
        judged = IntentsAndEntities().judge(scores, rows=len(texts), measures={"temperature": self.temperature})
        given = [
            Prediction(intent=one.intent, spans=tuple(map(back, one.spans)))
            for one, back in zip(predictions_of(scores), backs, strict=True)
        ]
        mended = repaired or [False] * len(texts)
        return Run(
            quality=evaluate(self.utterances, given),
            answers=tuple(
                Answered(one.label, one.outcome, one.usable, one.oov_share, was)
                for one, was in zip(judged, mended, strict=True)
            ),
        )


def trial_of(corpus: Corpus, predictor: IntentNerPredictor, *, most: int = 800, seed: int = 3) -> Trial:
    """A trial on at most ``most`` of the test texts; calibrated and measured on the validation texts, as a release."""
    validation = corpus.validation
    scores = predictor.predict([utterance.text for utterance in validation])
    labels_B = np.array([scores.intents.index(utterance.intent) for utterance in validation])
    temperature = fit_temperature(scores.intent_logits_BC, labels_B)
    tried = random.Random(seed).sample(corpus.test, min(most, len(corpus.test)))
    return Trial(
        predictor=predictor,
        temperature=temperature,
        baseline=measure(scores, temperature=temperature),
        utterances=tuple(tried),
        policy=TextPolicy(),
    )


def won_back(clean: float, off: float, on: float) -> float:
    """Share of what was lost with the nets off that is there again with them on; NaN where next to nothing was lost."""
    return (on - off) / (clean - off) if clean - off >= 0.02 else math.nan


def caught(trial: Trial, run: Run) -> float:
    """Share of out-of-scope texts that are named so, or whose answer goes to the fallback; NaN without any."""
    named = [
        one.intent == OUT_OF_SCOPE or not one.usable
        for one, utterance in zip(run.answers, trial.utterances, strict=True)
        if utterance.intent == OUT_OF_SCOPE
    ]
    return float(np.mean(named)) if named else math.nan


def _through(made: Malformed, net: Cleaned) -> Back:
    return lambda span: made.to_source(Span(*net.to_original(span.start, span.end), span.slot))
