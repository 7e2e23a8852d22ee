"""Sequence tagging: a tag for each token, the named pieces that they make, and how sure the whole is."""

# B texts, T tokens, S tags

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import index
from typing import Any

import numpy as np
from numpy.typing import NDArray

from failsoft.errors import ConfigError
from failsoft.serving.quality.limits import Limits, numbers
from failsoft.serving.seam import Judged, Measures, Quality, unusable
from failsoft.serving.web.messages import Entity

_Float = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class _Found:
    """What the scores of a batch say, as plain lists with a row for each text."""

    counts: list[int]
    best: list[list[int]]
    """The most probable tag of each token."""
    sure: list[list[float]]
    """Its probability."""
    confidences: list[float]
    """Geometric mean of these over a text's tokens; not finite where its scores are not."""
    entropies: list[float]
    """Mean over a text's tokens, as a fraction of the largest possible."""

    @classmethod
    def of(cls, logits_BTS: _Float, counts_B: NDArray[np.int64]) -> _Found:
        """Judge all tokens at once; padding counts for nothing, whatever it holds."""
        token_BT = np.arange(logits_BTS.shape[1]) < counts_B[:, np.newaxis]
        logits_BTS = np.where(token_BT[:, :, np.newaxis], logits_BTS, 0.0)
        log_BTS = logits_BTS - logits_BTS.max(axis=2, initial=-np.inf, keepdims=True)
        log_BTS -= np.log(np.exp(log_BTS).sum(axis=2, keepdims=True))
        probability_BTS, top_BT = np.exp(log_BTS), log_BTS.max(axis=2, initial=-np.inf)
        entropy_BT = -np.where(probability_BTS > 0.0, probability_BTS * log_BTS, 0.0).sum(axis=2)
        several_B = np.maximum(counts_B, 1)
        bad_B = ~np.isfinite(logits_BTS).all(axis=(1, 2))
        confidence_B = np.exp(np.where(token_BT, top_BT, 0.0).sum(axis=1) / several_B)
        entropy_B = np.where(token_BT, entropy_BT, 0.0).sum(axis=1) / several_B / math.log(logits_BTS.shape[2])
        return cls(
            counts=counts_B.tolist(),
            best=log_BTS.argmax(axis=2).tolist(),
            sure=np.exp(top_BT).tolist(),
            confidences=np.where(bad_B, np.nan, confidence_B).tolist(),
            entropies=entropy_B.tolist(),
        )


@dataclass(frozen=True, kw_only=True)
class Tagging(Quality):
    """The tags of a text are the output; where tokens have places, BIO tags make named pieces of it, too.

    Scores are a dict: ``logits`` (B, T, S); ``counts`` (B,), the tokens of each text, the rest of T being padding;
    ``offsets``, for each text the (start, end) of its tokens, may be left out. The confidence is the geometric mean of
    the tokens' top probabilities: of a long text one doubtful token does not condemn all.
    """

    labels: tuple[str, ...]
    """Names of the S tags, as ``O``, ``B-artist``, ``I-artist``; a model with other columns has no answer."""
    max_entropy: float = 0.95
    """Above it a text is weak: mean over its tokens, as a fraction of the largest possible."""
    min_span_confidence: float = 0.50
    """Named pieces below it are not given; the least sure token speaks for a piece."""
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        """Refuse names that can't be told apart, and limits that are no share."""
        if len(self.labels) < 2 or len(set(self.labels)) < len(self.labels):
            raise ConfigError(f"labels are {self.labels}; name each of at least two tags once")
        for name in ("max_entropy", "min_span_confidence"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ConfigError(f"{name} is {getattr(self, name)}; it is a fraction from 0 to 1")

    def judge(self, scores: Any, *, rows: int, measures: Measures) -> list[Judged]:
        """See :class:`failsoft.serving.seam.Quality`. Without a fitted ``temperature`` logits are taken as they are."""
        given = scores if isinstance(scores, Mapping) else {}
        logits_BTS, counts_B = numbers(given.get("logits"), rows=rows, ndim=3), _counts(given.get("counts"), rows)
        temperature = measures.get("temperature", 1.0)
        if logits_BTS is None or counts_B is None or logits_BTS.shape[2] != len(self.labels):
            return [unusable(f"scores are no tags of {rows} texts with {len(self.labels)} labels")] * rows
        if not 0.0 < temperature < math.inf:
            return [unusable(f"the release's temperature is {temperature}")] * rows
        with np.errstate(invalid="ignore"):  # rows that are not finite are found, not warned of
            found = _Found.of(logits_BTS / temperature, np.minimum(counts_B, logits_BTS.shape[1]).astype(np.int64))
        places = _places(given.get("offsets"), rows)
        return [self._judged(found, row, offsets) for row, offsets in enumerate(places)]

    def _judged(self, found: _Found, row: int, offsets: Sequence[tuple[int, int]] | None) -> Judged:
        count, entropy = found.counts[row], found.entropies[row]
        if not count:
            return unusable("no token was scored")
        if not math.isfinite(found.confidences[row]):
            return unusable("scores that are not finite")
        fault = "" if entropy <= self.max_entropy else f"entropy {entropy:.2f} is above {self.max_entropy:.2f}"
        tags = [self.labels[best] for best in found.best[row][:count]]
        judged = self.limits.judged(tags, found.confidences[row], fault=fault)
        if offsets is None or not judged.usable:
            return judged
        return judged._replace(entities=tuple(self._entities(tags, found.sure[row], offsets)))

    def _entities(
        self, tags: Sequence[str], sure: Sequence[float], offsets: Sequence[tuple[int, int]]
    ) -> Iterator[Entity]:
        if len(offsets) < len(tags):
            return
        for first, last, slot in pieces(tags):
            start, end, least = offsets[first][0], offsets[last][1], min(sure[first : last + 1])
            if least >= self.min_span_confidence and 0 <= start < end:
                yield Entity(start=start, end=end, slot=slot, text="", confidence=least)


def pieces(tags: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """First token, last token and name of each piece that BIO tags make; an ``I-`` without its ``B-`` begins one."""
    first, name = 0, ""
    for place, tag in enumerate([*tags, "O"]):
        kind, _, slot = tag.partition("-")
        goes_on = kind == "I" and slot == name
        if name and not goes_on:
            yield first, place - 1, name
            name = ""
        if kind in ("B", "I") and not goes_on:
            first, name = place, slot


def _counts(given: Any, rows: int) -> _Float | None:
    counts_B = numbers(given, rows=rows, ndim=1)
    return counts_B if counts_B is not None and (np.isfinite(counts_B) & (counts_B >= 0.0)).all() else None


def _places(given: Any, rows: int) -> list[list[tuple[int, int]] | None]:
    """Where the tokens of each text lie, from lists or an array; None for a text whose places are none."""
    found = list(given)[:rows] if isinstance(given, Sequence | np.ndarray) else []
    return [_places_of(row) for row in found] + [None] * (rows - len(found))


def _places_of(row: Any) -> list[tuple[int, int]] | None:
    try:
        return [(index(start), index(end)) for start, end in row]
    except (TypeError, ValueError):
        return None
