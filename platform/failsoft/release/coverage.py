"""How much of some texts a release can read, defined so that the number means something.

A vocabulary that falls back to characters or bytes covers everything and says nothing; one of whole words covers 93 to
95 % of the word types of clean held-out text, so "above 99.5 %" of those would fail healthy releases. Hence two
questions, each with a limit that fits it:

*Readable* (an absolute share, limit 99.5 %): of the words as they run through the text, how many get ids that training
gave a meaning? That is a word with an id of its own, or an unknown word whose every character has one. Clean text in
known letters passes whatever its names are; emoji, mathematical letters and foreign scripts do not, however few types
they are, because every use counts.

*Known types* (a relative share): of the different words, before any fallback to characters, how many did the training
texts hold, compared with the release's own validation texts *at the same number of texts*, since more text always holds
more rare words. A wave of invented words is readable letter by letter, and fails here.
"""
# B texts

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from failsoft.models.tokens import UNKNOWN, TextCodec
from failsoft.release.spread import Bootstrap, Floats

_BATCH = 256


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """What a codec makes of some texts."""

    texts: int
    words: int
    """Words as they run."""
    readable_fraction: float
    """Share of words that have an id of their own or are spelt in known characters; NaN without words."""
    known_fraction: float
    """Share of words that the training texts held; NaN without words."""
    empty_texts: int
    """Texts that hold no word at all."""
    different_texts: int
    """Different ones among the others: one text that is repeated a thousand times is one."""


@dataclass(frozen=True, kw_only=True)
class TypeComparison:
    """Known word types of traffic relative to those of the release's own texts: 1 is alike, 0.9 a tenth fewer."""

    value: float
    low: float
    high: float
    """Ends of the interval over resamples of both sides."""
    texts: int
    """Texts in each resample: the smaller of the two sides."""


def coverage_of(codec: TextCodec, texts: Sequence[str]) -> Coverage:
    """Read some texts with a codec and count."""
    words = readable = empty = 0
    different = set[str]()
    known = 0.0
    for start in range(0, len(texts), _BATCH):
        part = texts[start : start + _BATCH]
        encoded = codec.encode(part)
        found_B = encoded.counts_B + encoded.skipped_B  # a sign that is passed over was not read
        words += int(found_B.sum())
        empty += int((found_B == 0).sum())
        different.update(text for text, found in zip(part, found_B.tolist(), strict=True) if found)
        known += float(((1.0 - encoded.oov_fraction_B) * found_B).sum())
        spelt_U = ~(encoded.char_ids_UK == UNKNOWN).any(axis=1)
        has_word_BT = encoded.mask_BT & (np.arange(encoded.mask_BT.shape[1]) < encoded.counts_B[:, None])
        readable_BT = (encoded.word_ids_BT != UNKNOWN) | spelt_U[encoded.surface_BT]
        readable += int((readable_BT & has_word_BT).sum())
    return Coverage(
        texts=len(texts),
        words=words,
        readable_fraction=readable / words if words else float("nan"),
        known_fraction=known / words if words else float("nan"),
        empty_texts=empty,
        different_texts=len(different),
    )


def compare_types(codec: TextCodec, traffic: Sequence[str], own: Sequence[str], bootstrap: Bootstrap) -> TypeComparison:
    """Known types of ``traffic`` over those of ``own``, on equally many texts of each, resampled.

    NaN when either side is empty or holds no known word.
    """
    count = min(len(traffic), len(own))
    if not count:
        return TypeComparison(value=np.nan, low=np.nan, high=np.nan, texts=0)
    chance = np.random.default_rng(bootstrap.seed)
    theirs_R = _known_shares(codec, traffic, count, bootstrap.rounds, chance)
    ours_R = _known_shares(codec, own, count, bootstrap.rounds, chance)
    with np.errstate(divide="ignore", invalid="ignore"):  # nothing known on our side: NaN or Inf, which no gate passes
        ratios_R = theirs_R / ours_R
    low, high = bootstrap.interval(ratios_R)
    return TypeComparison(value=float(np.median(ratios_R)), low=low, high=high, texts=count)


def _known_shares(
    codec: TextCodec, texts: Sequence[str], count: int, rounds: int, chance: np.random.Generator
) -> Floats:
    """Share of known types in each of ``rounds`` resamples of ``count`` texts; 0 where there is no word."""
    numbers: dict[str, int] = {}
    rows = [[numbers.setdefault(word, len(numbers)) for word in words] for words in _words(codec, texts)]
    known = np.array([word in codec.known_words for word in numbers], dtype=bool)
    shares = []
    for _ in range(rounds):
        present = np.zeros(len(numbers), dtype=bool)
        present[[number for place in chance.integers(0, len(rows), count).tolist() for number in rows[place]]] = True
        shares.append(known[present].mean() if present.any() else 0.0)
    return np.array(shares, dtype=np.float64)


def _words(codec: TextCodec, texts: Sequence[str]) -> list[list[str]]:
    """Words of each text, in lower case, as the codec splits them."""
    split = []
    for start in range(0, len(texts), _BATCH):
        part = texts[start : start + _BATCH]
        for text, places in zip(part, codec.encode(part).offsets, strict=True):
            split.append([text[first:last].lower() for first, last in places if last > first])
    return split
