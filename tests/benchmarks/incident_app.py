"""The example's app around a model that can be told to answer a share of texts badly: plausible, and wrong.

A bad answer names an intent that none of the texts has, with a calibrated confidence of 0.50 to 0.64: enough to be
given to a caller each time, too little for a model that is well. The share lies in ``faults/share`` of the home.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from os import environ
from pathlib import Path

from failsoft.artifacts.bundle import Bundle, Role
from failsoft.models.scores import ScoreBatch
from failsoft.serving.app import build_app
from failsoft.serving.settings import ServeSettings
from serve_apps.intent_ner import SPEC
from serve_apps.predictor import ServedPredictor
from serve_apps.runtime import start
from tests.serving.tiny_release import CALIBRATION

WRONG = "transfer_money"
GATEWAYS, DEADLINE_MS = "INCIDENT_GATEWAYS", "INCIDENT_DEADLINE_MS"
LOWEST, HIGHEST = 0.50, 0.64


def share_file(home: Path) -> Path:
    """Where the share of bad answers stands."""
    return home / "faults" / "share"


def bad_logits(intents: Sequence[str], confidence: float) -> list[float]:
    """Logits whose calibrated softmax gives ``WRONG`` this confidence and all others the same rest."""
    top = CALIBRATION.temperature * math.log(confidence * (len(intents) - 1) / (1.0 - confidence))
    return [top if intent == WRONG else 0.0 for intent in intents]


class Breakable:
    """The example's predictor until its weights are broken."""

    def __init__(self, inner: ServedPredictor, share: Path) -> None:
        self._inner, self._share_file = inner, share
        self._share, self._chance = 0.0, random.Random(7)

    @classmethod
    def load(cls, bundle: Bundle) -> Breakable:
        """As the example does."""
        return cls(ServedPredictor.load(bundle), share_file(bundle.part(Role.WEIGHTS).parents[2]))

    def predict(self, texts: Sequence[str]) -> ScoreBatch:
        """The model's scores, some of them replaced."""
        scores = self._inner.predict(texts)
        if not self._share > 0.0:
            return scores
        logits_BC = scores.intent_logits_BC.copy()  # B texts, C intents
        for row in range(len(texts)):
            if self._chance.random() < self._share:
                logits_BC[row] = bad_logits(scores.intents, self._chance.uniform(LOWEST, HIGHEST))
        return replace(scores, intent_logits_BC=logits_BC)

    def break_weights(self) -> None:
        """From now on a share of the answers is bad; a load from disk heals it."""
        self._share = float(self._share_file.read_text("utf-8"))


@contextmanager
def serving(home: Path, port: int) -> Iterator[None]:
    """Serve it on the Ray that is there."""
    settings = ServeSettings(
        home=home,
        profile="drill",
        gateways=int(environ.get(GATEWAYS, "1")),
        deadline_ms=float(environ[DEADLINE_MS]) if DEADLINE_MS in environ else None,
        allow_planned_faults=True,
    )
    spec = replace(SPEC, predictor="tests.benchmarks.incident_app:Breakable")
    running = start(settings, port=port, make=lambda asked: build_app(spec, asked))
    try:
        yield
    finally:
        running.stop()
