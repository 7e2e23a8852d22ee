"""The first fallback: intents from hashed words and word pairs by gradient-boosted trees; microseconds, no torch.

Trees are sure of themselves on any input, all zeros included. So the answer's confidence is scaled by the share of
words that training knew, and a text with no known word gets no answer.
"""

# N texts, F hash buckets, C intents

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import lightgbm
import numpy as np
from numpy.typing import NDArray

from failsoft.errors import ConfigError, CorpusError
from failsoft.health.json_object import json_value
from failsoft.models.corpus import Utterance
from failsoft.models.single_row import SingleRow

MODEL_FILE, META_FILE = "model.txt", "meta.json"
_FORMAT = 1
_WORD = re.compile(r"\w+|[^\w\s]+")


@dataclass(frozen=True, kw_only=True)
class GbdtConfig:
    """Sizes of the trees and of the hashed features."""

    buckets: int = 4096
    """Words and word pairs are hashed into this many columns."""
    rounds: int = 100
    """Boosting rounds; each grows one tree per intent."""
    max_trees: int = 3000
    """Fewer rounds are made when there are so many intents that the trees would be more than this."""
    leaves: int = 15
    """Of a tree, at most."""
    learning_rate: float = 0.3
    """Shrinkage of each tree."""
    min_known_fraction: float = 0.2
    """Below this share of known words there is no answer."""
    max_chars: int = 2000
    """Characters of a text that are read; bounds the time of one answer."""

    def __post_init__(self) -> None:
        """Refuse sizes that learn nothing."""
        for name in ("buckets", "rounds", "max_trees", "max_chars"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; use 1 or more")
        if self.leaves < 2:
            raise ConfigError(f"leaves is {self.leaves}; a tree splits at least once, so use 2 or more")
        if not 0.0 < self.learning_rate <= 1.0:
            raise ConfigError(f"learning_rate is {self.learning_rate}; use a number above 0, up to 1")
        if not 0.0 <= self.min_known_fraction <= 1.0:
            raise ConfigError(f"min_known_fraction is {self.min_known_fraction}; use a fraction from 0 to 1")


class GbdtAnswer(NamedTuple):
    """What the trees say."""

    intent: str
    confidence: float
    """Probability times the known fraction."""
    known_fraction: float
    """Share of the text's words that the training texts held."""


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
        intents = sorted({utterance.intent for utterance in utterances})
        if len(intents) < 2:
            raise CorpusError(f"the trees need two intents or more to tell apart, the corpus has {intents}")
        features_NF = np.stack([features_of(words_of(u.text, config.max_chars), config.buckets) for u in utterances])
        labels = np.array([intents.index(utterance.intent) for utterance in utterances], dtype=np.int32)
        rounds = max(1, min(config.rounds, config.max_trees // len(intents)))
        booster = lightgbm.train(_parameters(config, len(intents)), lightgbm.Dataset(features_NF, labels), rounds)
        known = frozenset(word for u in utterances for word in words_of(u.text, config.max_chars))
        return cls(booster, intents=intents, known=known, config=config)

    def predict_one(self, text: str) -> GbdtAnswer | None:
        """The likeliest intent of any string; None when too little of it is known to say anything."""
        words = words_of(text, self.config.max_chars)
        known_fraction = sum(word in self.known for word in words) / len(words) if words else 0.0
        if not known_fraction > 0.0 or known_fraction < self.config.min_known_fraction:
            return None
        probabilities_C = self._single_row.predict(features_of(words, self.config.buckets))
        best = int(probabilities_C.argmax())
        return GbdtAnswer(self.intents[best], float(probabilities_C[best]) * known_fraction, known_fraction)

    def predict_features(self, features_NF: NDArray[np.floating]) -> NDArray[np.float64]:
        """Probabilities (N, C) for features made elsewhere.

        Raises:
            CorpusError: the shape is wrong, or a feature is NaN or infinite: the trees would read NaN as 0, in silence.
        """
        if features_NF.ndim != 2 or features_NF.shape[1] != self.config.buckets:
            raise CorpusError(f"features have shape {features_NF.shape}; the trees read (texts, {self.config.buckets})")
        if not np.isfinite(features_NF).all():
            row, column = (int(place) for place in np.argwhere(~np.isfinite(features_NF))[0])
            raise CorpusError(
                f"feature {column} of row {row} is {features_NF[row, column]}; the trees would answer as if it were 0"
            )
        answer = self._booster.predict(features_NF, num_threads=1)  # more threads only cost the tail for one row
        return np.asarray(answer, dtype=np.float64).reshape(len(features_NF), len(self.intents))

    def save(self, folder: Path) -> None:
        """Write LightGBM's own text file, and the rest as JSON."""
        folder.mkdir(parents=True, exist_ok=True)
        self._booster.save_model(str(folder / MODEL_FILE))
        body = {
            "format": _FORMAT,
            "intents": self.intents,
            "config": asdict(self.config),
            "known": sorted(self.known),
        }
        (folder / META_FILE).write_text(json.dumps(body), "utf-8")

    @classmethod
    def load(cls, folder: Path) -> GbdtIntent:
        """Read what :meth:`save` wrote; neither file can carry code.

        Raises:
            CorpusError: a file is absent or not such a file.
        """
        try:
            body = json_value((folder / META_FILE).read_text("utf-8"))
            if body["format"] != _FORMAT:
                raise CorpusError(f"{folder} has format {body['format']}, this code reads {_FORMAT}; train again")
            booster = lightgbm.Booster(model_file=str(folder / MODEL_FILE))
            loaded = cls(
                booster,
                intents=body["intents"],
                known=frozenset(body["known"]),
                config=GbdtConfig(**body["config"]),
            )
            loaded.predict_features(np.zeros((1, loaded.config.buckets)))
        except (OSError, ValueError, KeyError, TypeError, lightgbm.basic.LightGBMError) as error:
            raise CorpusError(f"{folder} does not hold the tree fallback ({error!r}); publish it again") from error
        return loaded


def words_of(text: str, max_chars: int) -> list[str]:
    """Lower-case words and runs of other signs."""
    return _WORD.findall(text[:max_chars].lower())


def features_of(words: Sequence[str], buckets: int) -> NDArray[np.float32]:
    """Counts per bucket; CRC-32 gives every process the same bucket, which Python's own hash does not."""
    out_F = np.zeros(buckets, dtype=np.float32)
    pairs = (f"{left} {right}" for left, right in zip(["", *words], [*words, ""], strict=True))
    for gram in (*words, *pairs):
        out_F[zlib.crc32(gram.encode("utf-8", "replace")) % buckets] += 1.0
    return out_F


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
