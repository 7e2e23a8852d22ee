"""Texts as scikit-learn's vectorizers read them, without scikit-learn: counts, hashed counts and tf-idf of n-grams."""

# F features

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from failsoft.errors import ConfigError
from failsoft.models.patterns import may_take_for_ever

ANALYZERS, NORMS = ("word", "char", "char_wb"), (None, "l1", "l2")
_SPACES = re.compile(r"\s\s+")
_MASK = 0xFFFFFFFF


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How a text becomes n-grams, and what a column of theirs holds; the names are scikit-learn's."""

    analyzer: str = "word"
    ngram_range: tuple[int, int] = (1, 1)
    lowercase: bool = True
    strip_accents: bool = False
    """As ``strip_accents="unicode"``."""
    token_pattern: str = r"(?u)\b\w\w+\b"  # noqa: S105 -- of words
    stop_words: tuple[str, ...] = ()
    binary: bool = False
    sublinear_tf: bool = False
    norm: str | None = None
    hashed_into: int | None = None
    """Columns that n-grams are hashed into; None: the vocabulary says which column is whose."""
    alternate_sign: bool = False
    max_chars: int = 2000
    """Characters of a text that are read; bounds the time of one answer."""

    def __post_init__(self) -> None:
        """Refuse what scikit-learn has not, and what reads nothing."""
        first, last = self.ngram_range
        if self.analyzer not in ANALYZERS or self.norm not in NORMS:
            raise ConfigError(f"analyzer is {self.analyzer!r} and norm {self.norm!r}; use one of {ANALYZERS}, {NORMS}")
        if not 1 <= first <= last or self.max_chars < 1 or not (self.hashed_into is None or self.hashed_into >= 1):
            raise ConfigError(f"ngram_range is {self.ngram_range}; use a range like (1, 2), and 1 or more columns")
        if self.analyzer == "word":
            _refuse_bad_token(self.token_pattern, self.max_chars)

    @cached_property
    def _token(self) -> re.Pattern[str]:
        return re.compile(self.token_pattern)

    def ngrams(self, text: str) -> Iterator[str]:
        """All n-grams of a text, in the order of the text."""
        text = text[: self.max_chars]
        text = text.lower() if self.lowercase else text
        text = _without_accents(text) if self.strip_accents else text
        if self.analyzer == "word":
            words = [word for word in self._token.findall(text) if word not in self.stop_words]
            return (" ".join(words[start : start + n]) for n, start in self._places(len(words)))
        text = _SPACES.sub(" ", text)
        if self.analyzer == "char":
            return (text[start : start + n] for n, start in self._places(len(text)))
        return (gram for word in text.split() for gram in self._inside(f" {word} "))

    def row(
        self, text: str, vocabulary: Mapping[str, int], idf_F: NDArray[np.float64] | None
    ) -> tuple[list[int], NDArray[np.float64]]:
        """Columns of a text in rising order, and what they hold; both are empty when nothing of it is known."""
        counts = self._counts(text, vocabulary)
        columns = sorted(counts)
        values = np.array([counts[column] for column in columns], dtype=np.float64)
        if self.binary:
            values = np.ones_like(values)
        if self.sublinear_tf:
            values = np.log(values) + 1.0
        if idf_F is not None:
            values = values * idf_F[columns]
        length = 0.0 if self.norm is None else _length(values, self.norm)
        return columns, values / length if length else values

    def _counts(self, text: str, vocabulary: Mapping[str, int]) -> Counter[int] | dict[int, float]:
        grams = self.ngrams(text)
        if self.hashed_into is None:
            return Counter(column for gram in grams if (column := vocabulary.get(gram)) is not None)
        found: dict[int, float] = {}
        for gram in grams:
            number = _hash(gram)
            column = _column(number, self.hashed_into)
            found[column] = found.get(column, 0.0) + (-1.0 if self.alternate_sign and number < 0 else 1.0)
        return found

    def _places(self, length: int) -> Iterator[tuple[int, int]]:
        first, last = self.ngram_range
        return ((n, start) for n in range(first, min(last, length) + 1) for start in range(length - n + 1))

    def _inside(self, word: str) -> Iterator[str]:
        first, last = self.ngram_range
        for n in range(first, last + 1):
            yield word[:n]
            yield from (word[start : start + n] for start in range(1, len(word) - n + 1))
            if len(word) <= n:  # a short word counts once
                return


def _refuse_bad_token(pattern: object, chars: int) -> None:
    """It is read from a release, and holds up the gateway for as long as it takes."""
    said = f"token_pattern is {str(pattern)[:200]!r}"
    if not isinstance(pattern, str):
        raise ConfigError(f"{said}; give a pattern")
    try:
        groups, endless = re.compile(pattern).groups, may_take_for_ever(pattern, chars=chars)
    except (re.error, OverflowError, RecursionError) as error:
        raise ConfigError(f"{said}, which is not a pattern: {error}") from error
    if groups > 1:
        raise ConfigError(f"{said}, which has {groups} groups; a token is the whole match, or one group")
    if endless:
        raise ConfigError(f"{said}, which can take for ever in a text of {chars} characters; repeat less in it")


def reading_of(vectorizer: Any) -> Reading:
    """How a fitted ``CountVectorizer``, ``TfidfVectorizer`` or ``HashingVectorizer`` reads.

    Raises:
        ConfigError: it reads by functions of its own, which no file can hold.
    """
    asked = vectorizer.get_params()
    own = [name for name in ("preprocessor", "tokenizer") if asked.get(name) is not None]
    own += [name for name in ("analyzer", "strip_accents") if callable(asked.get(name))]
    if own or asked.get("strip_accents") == "ascii" or asked.get("input") != "content":
        raise ConfigError(
            f"{type(vectorizer).__name__} reads by {', '.join(own) or 'strip_accents=ascii or from files'}, which "
            "can't be kept without code; use analyzer, token_pattern and strip_accents='unicode'"
        )
    hashed = type(vectorizer).__name__ == "HashingVectorizer"
    return Reading(
        analyzer=asked["analyzer"],
        ngram_range=tuple(asked["ngram_range"]),
        lowercase=bool(asked["lowercase"]),
        strip_accents=asked["strip_accents"] == "unicode",
        token_pattern=asked["token_pattern"],
        stop_words=tuple(sorted(vectorizer.get_stop_words() or ())),
        binary=bool(asked["binary"]),
        sublinear_tf=bool(asked.get("sublinear_tf", False)),
        norm=asked.get("norm"),
        hashed_into=int(asked["n_features"]) if hashed else None,
        alternate_sign=bool(asked.get("alternate_sign", False)),
    )


def _length(values: NDArray[np.float64], norm: str) -> float:
    return float(np.abs(values).sum()) if norm == "l1" else math.sqrt(float(values @ values))


def _without_accents(text: str) -> str:
    if text.isascii():
        return text
    return "".join(char for char in unicodedata.normalize("NFKD", text) if not unicodedata.combining(char))


def _column(number: int, columns: int) -> int:
    return (0x7FFFFFFF - (columns - 1)) % columns if number == -0x80000000 else abs(number) % columns


@lru_cache(maxsize=65536)
def _hash(gram: str) -> int:
    """MurmurHash3 (32 bits, seed 0) as a signed number, which scikit-learn hashes by; public domain, A. Appleby."""
    data = gram.encode("utf-8", "replace")
    whole, state = len(data) & ~3, 0
    for place in range(0, whole, 4):
        state ^= _scrambled(int.from_bytes(data[place : place + 4], "little"))
        state = (_rotated(state, 13) * 5 + 0xE6546B64) & _MASK
    if len(data) > whole:
        state ^= _scrambled(int.from_bytes(data[whole:], "little"))
    state ^= len(data)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        state = ((state ^ (state >> shift)) * factor) & _MASK
    return state - (1 << 32) if state >> 31 else state


def _scrambled(block: int) -> int:
    return (_rotated((block * 0xCC9E2D51) & _MASK, 15) * 0x1B873593) & _MASK


def _rotated(block: int, by: int) -> int:
    return ((block << by) | (block >> (32 - by))) & _MASK


def as_config(body: Mapping[str, Any]) -> Reading:
    """From JSON; raises TypeError for names that are none."""
    lists: dict[str, Sequence[Any]] = {name: tuple(body[name]) for name in ("ngram_range", "stop_words")}
    return Reading(**(dict(body) | lists))
