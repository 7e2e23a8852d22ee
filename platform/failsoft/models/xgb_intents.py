"""Intents by XGBoost, by the same protocol and features as the LightGBM fallback. Needs the extra ``xgboost``.

XGBoost's own model files are JSON or UBJSON: numbers and names, no code.
"""

# N texts, F hash buckets, C intents

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from failsoft.errors import ConfigError, CorpusError
from failsoft.models.corpus import Utterance
from failsoft.models.foreign.needed import needed
from failsoft.models.hashed_words import (
    GbdtAnswer,
    GbdtConfig,
    answer_of,
    features_of,
    lesson_of,
    read_meta,
    refuse_unreadable,
    words_of,
    write_meta,
)
from failsoft.models.xgb_single_row import XgbSingleRow

MODEL_FILE = "model.ubj"
_LEAST = {
    "binary:logistic": 0.5,
    "binary:logitraw": 0.0,
    "binary:hinge": 0.5,
    "multi:softmax": None,
    "multi:softprob": None,
}
"""Objectives of classifiers, and from what number on an answer means the second of two classes."""


class XgbIntent:
    """Trees with what they need to read a text; made by :meth:`train` or :meth:`load`."""

    def __init__(self, booster: Any, *, intents: Sequence[str], known: frozenset[str], config: GbdtConfig) -> None:
        self._booster = booster
        self.intents, self.known, self.config = tuple(intents), known, config
        booster.set_param({"nthread": 1})  # more do nothing for one row, and cost the tail
        self._single_row = XgbSingleRow(booster, classes=len(self.intents))

    @classmethod
    def train(cls, utterances: Sequence[Utterance], config: GbdtConfig | None = None) -> XgbIntent:
        """Learn from utterances; the same ones give the same trees.

        Raises:
            ConfigError: XGBoost is not installed.
            CorpusError: there are fewer than two intents to tell apart.
        """
        library, config = needed("xgboost", extra="xgboost"), config or GbdtConfig()
        lesson = lesson_of(utterances, config)
        data = library.DMatrix(lesson.features_NF, lesson.labels_N, nthread=1)
        booster = library.train(_parameters(config, len(lesson.intents)), data, lesson.rounds)
        return cls(booster, intents=lesson.intents, known=lesson.known, config=config)

    def predict_one(self, text: str) -> GbdtAnswer | None:
        """The likeliest intent of any string; None when too little of it is known to say anything."""
        words = words_of(text, self.config.max_chars)
        return answer_of(
            words,
            known=self.known,
            min_known_fraction=self.config.min_known_fraction,
            labels=self.intents,
            probabilities=lambda: self._single_row.predict(features_of(words, self.config.buckets)),
        )

    def predict_features(self, features_NF: NDArray[np.floating]) -> NDArray[np.float64]:
        """Probabilities (N, C) for features made elsewhere.

        Raises:
            CorpusError: the shape is wrong, or a feature is NaN or infinite: the trees would read NaN as absent.
        """
        refuse_unreadable(features_NF, self.config.buckets)
        answer = self._booster.inplace_predict(features_NF, validate_features=False)
        return np.asarray(answer, dtype=np.float64).reshape(len(features_NF), len(self.intents))

    def save(self, folder: Path) -> None:
        """Write XGBoost's own UBJSON file, and the rest as JSON."""
        folder.mkdir(parents=True, exist_ok=True)
        self._booster.save_model(str(folder / MODEL_FILE))
        write_meta(folder, intents=self.intents, config=self.config, known=self.known)

    @classmethod
    def load(cls, folder: Path) -> XgbIntent:
        """Read what :meth:`save` wrote; neither file can carry code.

        Raises:
            ConfigError: XGBoost is not installed.
            CorpusError: a file is absent or not such a file.
        """
        library = needed("xgboost", extra="xgboost")
        try:
            meta = read_meta(folder)
            booster = open_booster(library, folder / MODEL_FILE)
            loaded = cls(booster, intents=meta.intents, known=meta.known, config=meta.config)
            loaded.predict_features(np.zeros((1, loaded.config.buckets), dtype=np.float32))
        except (OSError, ValueError, KeyError, TypeError, ConfigError) as error:
            raise CorpusError(f"{folder} does not hold the tree fallback ({error!r}); publish it again") from error
        return loaded


class XgbRows:
    """Any XGBoost model over rows of numbers; ``FunctionRung("trees", XgbRows.load(bundle.file("trees.json")))``.

    It answers as XGBoost's own ``predict`` does: with the trees up to the best one where training was stopped early.

    Args:
        booster: the trees.
        labels: names of the classes of a classifier; None: the answer is the number that the trees give.

    Raises:
        ConfigError: the trees tell other than so many classes apart.
    """

    def __init__(self, booster: Any, labels: Sequence[str] | None = None) -> None:
        booster.set_param({"nthread": 1})
        self._labels = labels
        self._features = int(booster.num_features())
        best = booster.attr("best_iteration")
        rounds = (0, 0 if best is None else int(best) + 1)
        self._single_row = XgbSingleRow(booster, classes=1 if labels is None else None, rounds=rounds)
        self._least: float | None = None if labels is None else _least_of_the_second(booster, len(labels))

    @classmethod
    def load(cls, path: Path, labels: Sequence[str] | None = None) -> XgbRows:
        """Read what ``booster.save_model("trees.json")`` (or ``.ubj``) wrote.

        Raises:
            ConfigError: XGBoost is not installed, or the trees tell other than so many classes apart.
            CorpusError: the file is absent or none of XGBoost's.
        """
        library = needed("xgboost", extra="xgboost")
        try:
            return cls(open_booster(library, path), labels)
        except (OSError, ValueError) as error:
            raise CorpusError(f"{path} holds no XGBoost model ({error!r}); write it with save_model") from error

    def __call__(self, row: Sequence[float]) -> Any:
        """The class of a row by name, or the number.

        Raises:
            CorpusError: the row has another length, or holds what is no number: the trees would read it as absent.
        """
        row_1F = np.asarray([row], dtype=np.float32)
        if row_1F.shape != (1, self._features) or not np.isfinite(row_1F).all():
            raise CorpusError(f"{row!r:.80} is no row of {self._features} finite numbers")
        answer_C = self._single_row.predict(row_1F[0])
        if self._labels is None:
            return float(answer_C[0])
        if len(answer_C) > 1:
            return self._labels[int(answer_C.argmax())]
        answer = answer_C[0]
        return self._labels[int(answer) if self._least is None else int(answer >= self._least)]


def _least_of_the_second(booster: Any, labels: int) -> float | None:
    """From what number on a row is of the second of two classes; None: the trees give a class's number, or all odds.

    Raises:
        ConfigError: the trees are no classifier of so many classes.
    """
    learner = json.loads(booster.save_config())["learner"]
    name, classes = str(learner["objective"]["name"]), max(2, int(learner["learner_model_param"]["num_class"]))
    if name not in _LEAST:
        raise ConfigError(f"the objective {name} gives no classes; leave labels out, or use one of {', '.join(_LEAST)}")
    if classes != labels:
        raise ConfigError(f"the trees tell {classes} classes apart, and {labels} labels are given; name each of them")
    return _LEAST[name]


def open_booster(library: Any, path: Path) -> Any:
    """An XGBoost model from its own file; raises OSError where it is absent and ValueError where it is none."""
    with path.open("rb"):  # XGBoost's own words on an absent file are a stack trace of its C++
        pass
    return library.Booster(model_file=str(path))


def _parameters(config: GbdtConfig, intents: int) -> dict[str, object]:
    return {
        "objective": "multi:softprob",
        "num_class": intents,
        "max_leaves": config.leaves,
        "max_depth": 6,
        "eta": config.learning_rate,
        "lambda": 3.0,
        "max_bin": 16,
        "tree_method": "hist",
        "nthread": 1,
        "seed": 0,
        "verbosity": 0,
    }
