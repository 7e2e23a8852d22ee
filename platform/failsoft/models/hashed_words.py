"""Texts as counts of hashed words and word pairs, which the small models of the fallback learn from.

A small model is sure of itself on any input, all zeros included. So its confidence is scaled by the share of words that
training knew, and a text with no known word gets no answer.
"""

# N texts, F hash buckets, C intents

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from failsoft.errors import ConfigError, CorpusError
from failsoft.health.json_object import json_value
from failsoft.models.corpus import Utterance

META_FILE = "meta.json"
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
    """What a small model says."""

    intent: str
    confidence: float
    """Probability times the known fraction."""
    known_fraction: float
    """Share of the text's words that the training texts held."""


class Lesson(NamedTuple):
    """What trees learn from."""

    intents: tuple[str, ...]
    features_NF: NDArray[np.float32]
    labels_N: NDArray[np.int32]
    known: frozenset[str]
    """The words of all texts."""
    rounds: int
    """Boosting rounds that keep to the bound on trees."""


def lesson_of(utterances: Sequence[Utterance], config: GbdtConfig) -> Lesson:
    """Features and labels of utterances, intents in alphabetical order.

    Raises:
        CorpusError: there are fewer than two intents to tell apart.
    """
    intents = sorted({utterance.intent for utterance in utterances})
    if len(intents) < 2:
        raise CorpusError(f"the trees need two intents or more to tell apart, the corpus has {intents}")
    words = [words_of(utterance.text, config.max_chars) for utterance in utterances]
    return Lesson(
        intents=tuple(intents),
        features_NF=np.stack([features_of(row, config.buckets) for row in words]),
        labels_N=np.array([intents.index(utterance.intent) for utterance in utterances], dtype=np.int32),
        known=frozenset(word for row in words for word in row),
        rounds=max(1, min(config.rounds, config.max_trees // len(intents))),
    )


def answer_of(
    words: Sequence[str],
    *,
    known: frozenset[str],
    min_known_fraction: float,
    labels: Sequence[str],
    probabilities: Callable[[], NDArray[np.float64]],
) -> GbdtAnswer | None:
    """The likeliest label; None when too little of the words is known, or the probabilities (C,) are no numbers."""
    known_fraction = sum(word in known for word in words) / len(words) if words else 0.0
    if not known_fraction > 0.0 or known_fraction < min_known_fraction:
        return None
    probabilities_C = probabilities()
    if not np.isfinite(probabilities_C).all():
        return None
    best = int(probabilities_C.argmax())
    return GbdtAnswer(labels[best], float(probabilities_C[best]) * known_fraction, known_fraction)


def refuse_unreadable(features_NF: NDArray[np.floating], buckets: int) -> None:
    """Refuse features, made elsewhere, that trees would answer in silence.

    Raises:
        CorpusError: the shape is wrong, or a feature is NaN or infinite: trees read NaN as 0, or as absent.
    """
    if features_NF.ndim != 2 or features_NF.shape[1] != buckets:
        raise CorpusError(f"features have shape {features_NF.shape}; the trees read (texts, {buckets})")
    if not np.isfinite(features_NF).all():
        row, column = (int(place) for place in np.argwhere(~np.isfinite(features_NF))[0])
        raise CorpusError(
            f"feature {column} of row {row} is {features_NF[row, column]}; the trees would answer as if it were absent"
        )


def write_meta(folder: Path, *, intents: Sequence[str], config: GbdtConfig, known: frozenset[str]) -> None:
    """Write as JSON what the trees' own file does not hold."""
    body = {"format": _FORMAT, "intents": list(intents), "config": asdict(config), "known": sorted(known)}
    (folder / META_FILE).write_text(json.dumps(body), "utf-8")


class Meta(NamedTuple):
    """What :func:`write_meta` wrote."""

    intents: tuple[str, ...]
    known: frozenset[str]
    config: GbdtConfig


def read_meta(folder: Path) -> Meta:
    """Read what :func:`write_meta` wrote.

    Raises:
        CorpusError: it is of another format.
        OSError, ValueError, KeyError, TypeError, ConfigError: it is no such file.
    """
    body = json_value((folder / META_FILE).read_text("utf-8"))
    if body["format"] != _FORMAT:
        raise CorpusError(f"{folder} has format {body['format']}, this code reads {_FORMAT}; train again")
    return Meta(tuple(body["intents"]), frozenset(body["known"]), GbdtConfig(**body["config"]))


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
