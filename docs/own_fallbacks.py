"""XGBoost and scikit-learn answer when the model does not: ``python docs/own_fallbacks.py [HOME]``.

Then: ``failsoft serve --app docs.own_fallbacks:config``. Needs ``pip install 'failsoft[xgboost]'``, and
scikit-learn where the linear model is trained; it is served as plain arrays. Neither file holds a pickle.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from failsoft.artifacts.bundle import Bundle
from failsoft.models.embedded import Sizes, embedded_corpus
from failsoft.models.hashed_words import GbdtConfig
from failsoft.models.linear_text import LinearText
from failsoft.models.xgb_intents import XgbIntent
from failsoft.serving import AppSpec, Classification, ConstantRung, Rung, publish_own
from failsoft.serving.fallback.rungs import GbdtRung

SAMPLES = embedded_corpus(sizes=Sizes(train=200, validation=10, test=10)).train
TEXTS, INTENTS = [sample.text for sample in SAMPLES], [sample.intent for sample in SAMPLES]


class Model:
    """Stands for a model of your own; here it is the linear one, too."""

    def __init__(self, linear: LinearText) -> None:
        self.linear = linear

    @classmethod
    def load(cls, bundle: Bundle) -> Model:
        """Runs in each model replica."""
        return cls(LinearText.load(bundle.file("linear")))

    def predict(self, texts: list[str]) -> np.ndarray:
        """Logits."""
        return np.log(np.stack([self.linear.probabilities(text) for text in texts]))


def rungs(bundle: Bundle) -> list[Rung]:
    """In the gateway process, from the best to the surest; a text of unknown words is left to the last."""
    trees, linear = XgbIntent.load(bundle.file("xgboost")), LinearText.load(bundle.file("linear"))
    return [GbdtRung(trees, name="xgboost"), GbdtRung(linear, name="linear"), ConstantRung("unknown")]


config = AppSpec(predictor=Model, quality=Classification(labels=tuple(sorted(set(INTENTS)))), rungs=rungs)


def publish(home: Path) -> Bundle:
    """Both fallbacks travel with the release that they stand in for."""
    from sklearn.feature_extraction.text import TfidfVectorizer  # noqa: PLC0415 -- gateways do without
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415
    from sklearn.pipeline import make_pipeline  # noqa: PLC0415

    pipeline = make_pipeline(TfidfVectorizer(ngram_range=(1, 2)), LogisticRegression(C=100.0)).fit(TEXTS, INTENTS)
    LinearText.of_sklearn(pipeline, texts=TEXTS).save(home / "model/linear")
    XgbIntent.train(SAMPLES, GbdtConfig(buckets=256, rounds=10)).save(home / "model/xgboost")
    return publish_own(config, home / "model", healthy=TEXTS, home=home)


if __name__ == "__main__":
    print("published", publish(Path(sys.argv[1] if sys.argv[1:] else "work")).name)
