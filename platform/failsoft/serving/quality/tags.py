"""Sequence tagging: a tag for each token, the named pieces that they make, and how sure the whole is."""

# B texts, T tokens, S tags

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from failsoft.errors import ConfigError
from failsoft.serving.messages import Entity
from failsoft.serving.quality.limits import Limits, numbers
from failsoft.serving.seam import Judged, Measures, Quality, unusable

_Float = NDArray[np.float64]


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
        places = given.get("offsets") or [None] * rows
        each = zip(logits_BTS / temperature, counts_B, places, strict=False)
        judged = [self._judged(logits_TS[:count], offsets) for logits_TS, count, offsets in each]
        return judged + [unusable("the model left it out")] * (rows - len(judged))

    def _judged(self, logits_TS: _Float, offsets: Sequence[tuple[int, int]] | None) -> Judged:
        if not logits_TS.size or not np.isfinite(logits_TS).all():
            return unusable("no token was scored" if not logits_TS.size else "scores that are not finite")
        log_TS = logits_TS - logits_TS.max(axis=1, keepdims=True)
        log_TS = log_TS - np.log(np.exp(log_TS).sum(axis=1, keepdims=True))
        entropy = float(-(np.exp(log_TS) * log_TS).sum(axis=1).mean()) / math.log(len(self.labels))
        fault = f"entropy {entropy:.2f} is above {self.max_entropy:.2f}" if not entropy <= self.max_entropy else ""
        best_T = log_TS.argmax(axis=1)
        tags = [self.labels[best] for best in best_T.tolist()]
        sure_T = np.exp(log_TS.max(axis=1)).tolist()
        confidence = float(np.exp(log_TS.max(axis=1).mean()))
        judged = self.limits.judged(tags, confidence, fault=fault)
        return judged._replace(entities=tuple(self._entities(tags, sure_T, offsets))) if judged.usable else judged

    def _entities(
        self, tags: Sequence[str], sure: Sequence[float], offsets: Sequence[tuple[int, int]] | None
    ) -> Iterator[Entity]:
        if offsets is None or len(offsets) < len(tags):
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


def _counts(given: Any, rows: int) -> list[int] | None:
    counts_B = numbers(given, rows=rows, ndim=1)
    if counts_B is None or not (np.isfinite(counts_B) & (counts_B >= 0.0)).all():
        return None
    return [int(count) for count in counts_B.tolist()]
