"""How much of some texts a release can read, defined so that the number means something.

A vocabulary that falls back to characters or bytes covers everything and says nothing. One of whole words knows 79 to
84 % of the word types of clean held-out text (SNIPS, CLINC150) and 95 to 98 % of the words as they run: what is missing
are words that somebody uses once, and more text always holds more of them (the chance that the next word is a new one
is about the share of words that were seen once: Good, "The population frequencies of species", Biometrika 40, 1953).
"Above 99.5 %" of all types would fail every healthy release. Hence three questions, each before or after the fallback,
each with a limit that fits it:

*Readable* (on ids, limit 99.5 %): of the words as they run through the text, how many get ids that training gave a
meaning? That is a word with an id of its own, or an unknown word whose every character has one. Emoji, mathematical
letters and foreign scripts do not, however few types they are, because every use counts.

*Recurring word types* (before any fallback, limit 99.5 %): types that come back, in 0.3 % of the texts and three at
least, are no chance finds: a vocabulary that fits knows them. Of all uses of such types, how many does it know?
Held-out texts of SNIPS have 100.0 %, of CLINC150 99.9 %, also where 18 % of them are about nothing that was trained. An
emoji on each text leaves 88 %, one on each twentieth 99.3 %, another domain 79 to 92 %.

*Unknown words* (a rise, limit 5 points): words that are new each time recur nowhere. Their share is compared with that
of the release's own held-out texts. Five points more cost 0.4 points of accuracy on SNIPS and 4 on CLINC150, which is
what a release may be worse than the served one.
"""
# B texts, R bootstrap rounds

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from failsoft.models.tokens import UNKNOWN, TextCodec
from failsoft.release.spread import Bootstrap, Floats

_BATCH = 256
_RECURS_IN_FRACTION, _RECURS_IN_TEXTS = 0.003, 3
"""A type recurs that is in so many of the texts: with half of that two namesakes are a type, with three times as many
only function words are left."""
_NAMED = 3


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """What a codec makes of some texts."""

    texts: int
    words: int
    """Words as they run."""
    readable_fraction: float
    """Share of words that have an id of their own or are spelt in known characters; NaN without words."""
    readable_low: float
    """Lower end of its interval over resampled texts; at most 1 - 3/words, since so few words show no more than that
    (Hanley and Lippman-Hand, "If nothing goes wrong, is everything all right?", JAMA 249, 1983)."""
    known_fraction: float
    """Share of words that the training texts held; NaN without words."""
    empty_texts: int
    """Texts that hold no word at all."""
    different_texts: int
    """Different ones among the others: one text that is repeated a thousand times is one."""


@dataclass(frozen=True, kw_only=True)
class Recurring:
    """Of the uses of words that come back, the share that training held; NaN where no word comes back."""

    value: float
    low: float
    """Lower end of its interval, as that of :attr:`Coverage.readable_low`."""
    types: int
    uses: int
    unknown: tuple[str, ...]
    """The most used types that training did not hold."""


@dataclass(frozen=True, kw_only=True)
class Rise:
    """How much larger the share of unknown words is than in the release's own texts: 0.02 is two points."""

    value: float
    low: float
    high: float
    """Ends of the interval over resamples of both sides."""
    own: float
    """The share in the release's own texts."""


def coverage_of(codec: TextCodec, texts: Sequence[str], bootstrap: Bootstrap) -> Coverage:
    """Read some texts with a codec and count."""
    parts = [_Read.of(codec, texts[start : start + _BATCH]) for start in range(0, len(texts), _BATCH)]
    words_B = np.concatenate([np.zeros(0), *(part.words_B for part in parts)])
    readable_B = np.concatenate([np.zeros(0), *(part.readable_B for part in parts)])
    known, words = sum(part.known for part in parts), float(words_B.sum())
    return Coverage(
        texts=len(texts),
        words=int(words),
        readable_fraction=float(readable_B.sum()) / words if words else math.nan,
        readable_low=_low(readable_B, words_B, bootstrap),
        known_fraction=known / words if words else math.nan,
        empty_texts=int((words_B == 0).sum()),
        different_texts=len({text for text, found in zip(texts, words_B.tolist(), strict=True) if found}),
    )


@dataclass(frozen=True, kw_only=True)
class _Read:
    """What a codec makes of a batch."""

    words_B: Floats
    readable_B: Floats
    known: float

    @classmethod
    def of(cls, codec: TextCodec, texts: Sequence[str]) -> _Read:
        encoded = codec.encode(texts)
        words_B = (encoded.counts_B + encoded.skipped_B).astype(np.float64)  # a sign passed over was not read
        spelt_U = ~(encoded.char_ids_UK == UNKNOWN).any(axis=1)
        has_word_BT = encoded.mask_BT & (np.arange(encoded.mask_BT.shape[1]) < encoded.counts_B[:, None])
        readable_BT = (encoded.word_ids_BT != UNKNOWN) | spelt_U[encoded.surface_BT]
        return cls(
            words_B=words_B,
            readable_B=(readable_BT & has_word_BT).sum(axis=1).astype(np.float64),
            known=float(((1.0 - encoded.oov_fraction_B) * words_B).sum()),
        )


def recurring_of(codec: TextCodec, texts: Sequence[str], bootstrap: Bootstrap) -> Recurring:
    """Look at the words that come back in some texts. A sign that the codec would pass over is a word here."""
    rows = _words(codec, texts)
    found_in = Counter(word for row in rows for word in dict(row))
    needed = max(_RECURS_IN_TEXTS, math.ceil(_RECURS_IN_FRACTION * len(rows)))
    back = {word for word, count in found_in.items() if count >= needed}
    rows = [[(word, known) for word, known in row if word in back] for row in rows]
    unknown = Counter(word for row in rows for word, known in row if not known)
    uses_B, known_B = _counted(rows)
    uses = int(uses_B.sum())
    return Recurring(
        value=float(known_B.sum()) / uses if uses else math.nan,
        low=_low(known_B, uses_B, bootstrap),
        types=len(back),
        uses=uses,
        unknown=tuple(word for word, _ in unknown.most_common(_NAMED)),
    )


def unknown_rise(codec: TextCodec, traffic: Sequence[str], own: Sequence[str], bootstrap: Bootstrap) -> Rise:
    """Compare the shares of unknown words in traffic and in the release's own held-out texts."""
    chance = np.random.default_rng(bootstrap.seed)
    shares, rounds = [], []
    for texts in (traffic, own):
        words_B, known_B = _counted(_words(codec, texts))
        words = float(words_B.sum())
        shares.append(1.0 - float(known_B.sum()) / words if words else math.nan)
        rounds.append(1.0 - _resampled(known_B, words_B, bootstrap, chance))
    low, high = bootstrap.interval(rounds[0] - rounds[1])
    return Rise(value=shares[0] - shares[1], low=low, high=high, own=shares[1])


_Words = list[tuple[str, bool]]
"""The words of a text in lower case, each with whether training held it."""


def _words(codec: TextCodec, texts: Sequence[str]) -> list[_Words]:
    found = ((text, *codec.words(text)) for text in texts)
    return [
        [(text[first:last].lower(), number != UNKNOWN) for number, (first, last) in zip(ids, places, strict=True)]
        for text, ids, places in found
    ]


def _counted(rows: Sequence[_Words]) -> tuple[Floats, Floats]:
    """Words of each text, and how many of them training held."""
    words_B = np.array([len(row) for row in rows], dtype=np.float64)
    return words_B, np.array([sum(known for _, known in row) for row in rows], dtype=np.float64)


def _low(part_B: Floats, whole_B: Floats, bootstrap: Bootstrap) -> float:
    """Lower end of a share near 1; where every resample has all, what so few could show."""
    whole = float(whole_B.sum())
    low, _ = bootstrap.interval(_resampled(part_B, whole_B, bootstrap, np.random.default_rng(bootstrap.seed)))
    return min(low, 1.0 - 3.0 / whole) if whole else math.nan


def _resampled(part_B: Floats, whole_B: Floats, bootstrap: Bootstrap, chance: np.random.Generator) -> Floats:
    """The ratio of sums in each resample; NaN in those without a word, which makes the interval NaN."""
    shares_R = np.full(bootstrap.rounds, np.nan)
    for number in range(bootstrap.rounds if len(whole_B) else 0):
        picks_B = chance.integers(0, len(whole_B), len(whole_B))
        whole = whole_B[picks_B].sum()
        shares_R[number] = part_B[picks_B].sum() / whole if whole else np.nan
    return shares_R
