"""The first fallback: intents from hashed words and word pairs by gradient-boosted trees; microseconds, no torch."""

# N texts, F hash buckets, C intents

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import lightgbm
import numpy as np
from numpy.typing import NDArray

from failsoft.errors import CorpusError
from failsoft.models.corpus import Utterance
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
from failsoft.models.single_row import SingleRow

MODEL_FILE = "model.txt"


class GbdtIntent:
    """Trees with what they need to read a text; made by :meth:`train` or :meth:`load`."""

    def __init__(
        self, booster: lightgbm.Booster, *, intents: Sequence[str], known: frozenset[str], config: GbdtConfig
    ) -> None:
        self._booster = booster
        self.intents = tuple(intents)
        self.known = known
        self.config = config
        self._single_row = SingleRow(booster, classes=len(self.intents))

    @classmethod
    def train(cls, utterances: Sequence[Utterance], config: GbdtConfig | None = None) -> GbdtIntent:
        """Learn from utterances; the same ones give the same trees.

        Raises:
            CorpusError: there are fewer than two intents to tell apart.
        """
        config = config or GbdtConfig()
        lesson = lesson_of(utterances, config)
        data = lightgbm.Dataset(lesson.features_NF, lesson.labels_N)
        booster = lightgbm.train(_parameters(config, len(lesson.intents)), data, lesson.rounds)
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
            CorpusError: the shape is wrong, or a feature is NaN or infinite: the trees would read NaN as 0, in silence.
        """
        refuse_unreadable(features_NF, self.config.buckets)
        answer = self._booster.predict(features_NF, num_threads=1)  # more threads only cost the tail for one row
        return np.asarray(answer, dtype=np.float64).reshape(len(features_NF), len(self.intents))

    def save(self, folder: Path) -> None:
        """Write LightGBM's own text file, and the rest as JSON."""
        folder.mkdir(parents=True, exist_ok=True)
        self._booster.save_model(str(folder / MODEL_FILE))
        write_meta(folder, intents=self.intents, config=self.config, known=self.known)

    @classmethod
    def load(cls, folder: Path) -> GbdtIntent:
        """Read what :meth:`save` wrote; neither file can carry code.

        Raises:
            CorpusError: a file is absent or not such a file.
        """
        try:
            meta = read_meta(folder)
            booster = lightgbm.Booster(model_file=str(folder / MODEL_FILE))
            loaded = cls(booster, intents=meta.intents, known=meta.known, config=meta.config)
            loaded.predict_features(np.zeros((1, loaded.config.buckets)))
        except (OSError, ValueError, KeyError, TypeError, lightgbm.basic.LightGBMError) as error:
            raise CorpusError(f"{folder} does not hold the tree fallback ({error!r}); publish it again") from error
        return loaded


def _parameters(config: GbdtConfig, intents: int) -> dict[str, object]:
    return {
        "objective": "multiclass",
        "num_class": intents,
        "num_leaves": config.leaves,
        "learning_rate": config.learning_rate,
        "min_data_in_leaf": 5,
        "lambda_l2": 3.0,  # without it, 151 intents ran away to 1 % accuracy
        "max_bin": 15,
        "num_threads": 1,
        "deterministic": True,
        "force_col_wise": True,
        "seed": 0,
        "verbosity": -1,
    }
