"""Recorded answers for the incident race: a trained model's to published test texts, while it is well and while ill.

``python -m tests.benchmarks.race_recording`` trains (or takes from ``build/nets``) the models of ``bench_nets.py``,
asks them, spoils copies of SNIPS' weights by noise, asks those and the LightGBM fallback, too, and writes
``race_recorded.json`` beside this file. The race itself needs none of it but that file. Two spoilt models were kept of
ten that were looked at: one whose confidence collapsed, and one that is sure of one wrong intent, which no confidence
tells.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from failsoft.artifacts.bundle import Baseline
from failsoft.health.window import Outcome
from failsoft.models.corpora import load_corpus
from failsoft.models.corpus import Corpus, Utterance
from failsoft.models.gbdt import GbdtIntent
from failsoft.models.predictor import IntentNerPredictor
from failsoft.models.scores import ScoreBatch
from failsoft.release.baseline import measure
from failsoft.release.calibrate import fit_temperature
from failsoft.serving.quality.intents import IntentsAndEntities
from tests.benchmarks.nets_model import recipe, trained
from tests.conftest import data_folder

FILE = Path(__file__).parent / "race_recorded.json"
COLLAPSE, SURE_AND_WRONG = "confidence collapse", "sure and wrong"
SPOILT = {COLLAPSE: (0.9, 3), SURE_AND_WRONG: (1.5, 4)}
"""Spread of the noise in parts of each tensor's own, which is what broken weights or a wrong cast look like; a seed."""
SEED, MOST = 3, 700
OUT_OF_SCOPE = "oos"


@dataclass(frozen=True, kw_only=True)
class Given:
    """One recorded answer."""

    intent: str
    outcome: Outcome
    usable: bool
    confidence: float
    oov_share: float
    words: float
    right: bool
    """The intent is that of the data set."""


@dataclass(frozen=True, kw_only=True)
class Recording:
    """One data set's answers; all lists are about the same texts in the same order."""

    name: str
    baseline: Baseline
    healthy: tuple[Given, ...]
    ill: Mapping[str, tuple[Given, ...]]
    """By the kind of incident; empty where no ill model was recorded."""
    fallback_right: tuple[bool, ...]
    """Whether the LightGBM fallback has the right intent; empty where none was asked."""

    @property
    def weak_fraction(self) -> float:
        """Share of the healthy answers that the confidence calls weak."""
        return sum(one.outcome is Outcome.WEAK for one in self.healthy) / len(self.healthy)


def recorded(path: Path = FILE) -> dict[str, Recording]:
    """What the file holds, by the name of the data set."""
    return {name: _recording(name, body) for name, body in json.loads(path.read_text("utf-8")).items()}


def _recording(name: str, body: dict[str, Any]) -> Recording:
    intents = body["intents"]
    return Recording(
        name=name,
        baseline=Baseline(**body["baseline"]),
        healthy=_answers(body["healthy"], intents),
        ill={kind: _answers(rows, intents) for kind, rows in body["ill"].items()},
        fallback_right=tuple(one == "1" for one in body["fallback_right"]),
    )


def _answers(rows: Sequence[Sequence[Any]], intents: Sequence[str]) -> tuple[Given, ...]:
    return tuple(
        Given(
            intent=intents[intent],
            outcome=Outcome(outcome),
            usable=bool(usable),
            confidence=confidence,
            oov_share=oov_share,
            words=float(words),
            right=bool(right),
        )
        for intent, outcome, usable, confidence, oov_share, words, right in rows
    )


def _rows(scores: ScoreBatch, temperature: float, texts: Sequence[Utterance]) -> list[list[Any]]:
    judged = IntentsAndEntities().judge(scores, rows=len(texts), measures={"temperature": temperature})
    return [
        [
            scores.intents.index(one.label),
            str(one.outcome),
            int(one.usable),
            round(one.confidence, 3),
            round(one.oov_share, 3),
            int(one.words),
            int(one.label == text.intent),
        ]
        for one, text in zip(judged, texts, strict=True)
    ]


def spoil(model: nn.Module, *, noise: float, seed: int) -> None:
    """Put every weight off by ``noise`` of its tensor's own spread."""
    chance = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weights in model.parameters():
            spread = float(weights.std()) if weights.numel() > 1 else 0.0
            weights.add_(torch.randn(weights.shape, generator=chance), alpha=noise * spread)


def tried(corpus: Corpus) -> list[Utterance]:
    """Test texts, with no more out-of-scope ones among them than validation has: the test texts hold many."""
    chance = random.Random(SEED)
    texts = chance.sample(corpus.test, len(corpus.test))
    inside = [one for one in texts if one.intent != OUT_OF_SCOPE][:MOST]
    usual = sum(one.intent == OUT_OF_SCOPE for one in corpus.validation) / len(corpus.validation)
    outside = [one for one in texts if one.intent == OUT_OF_SCOPE][: round(len(inside) * usual / (1.0 - usual))]
    return chance.sample(inside + outside, len(inside) + len(outside))


def record(corpus: Corpus, *, spoilers: Mapping[str, tuple[float, int]]) -> dict[str, Any]:
    """Ask everybody about the same test texts; without ``spoilers`` the healthy model alone."""
    predictor, _ = trained(corpus, recipe())
    validation = predictor.predict([utterance.text for utterance in corpus.validation])
    right = [utterance.intent for utterance in corpus.validation]
    labels_B = np.array([validation.intents.index(intent) for intent in right])
    temperature, texts = fit_temperature(validation.intent_logits_BC, labels_B), tried(corpus)
    asked = [one.text for one in texts]
    ill = {kind: _spoilt(predictor, *how).predict(asked) for kind, how in spoilers.items()}
    trees = GbdtIntent.train(corpus.train) if spoilers else None
    return {
        "intents": list(validation.intents),
        "baseline": asdict(measure(validation, temperature=temperature, intents=right)),
        "healthy": _rows(predictor.predict(asked), temperature, texts),
        "ill": {kind: _rows(scores, temperature, texts) for kind, scores in ill.items()},
        "fallback_right": "".join(_bit(trees, one) for one in texts) if trees else "",
    }


def _spoilt(predictor: IntentNerPredictor, noise: float, seed: int) -> IntentNerPredictor:
    model = copy.deepcopy(predictor.model)
    spoil(model, noise=noise, seed=seed)
    return IntentNerPredictor(model, predictor.codec, predictor.labels)


def _bit(trees: GbdtIntent, text: Utterance) -> str:
    answer = trees.predict_one(text.text)
    return str(int(answer is not None and answer.intent == text.intent))


def main() -> None:
    """Record both data sets."""
    body = {
        name: record(load_corpus(data_folder(name)), spoilers=SPOILT if name == "snips" else {})
        for name in ("snips", "clinc150")
    }
    FILE.write_text(json.dumps(body, separators=(",", ":")).replace("]],", "]],\n"), "utf-8")


if __name__ == "__main__":
    main()
