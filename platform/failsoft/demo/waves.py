"""Traffic that broke the real system: emoji glued to words, odd Unicode, words that no training text had.

Deterministic from a ``random.Random``; the text changes, the meaning a person reads in it does not.
"""

from __future__ import annotations

import random
from collections.abc import Callable

Wave = Callable[[str, random.Random], str]

_EMOJI = ("😀", "🔥", "👍🏽", "👨‍👩‍👧", "🇫🇷", "❤️", "🎵", "🍕", "1️⃣", "🙏")
_JOINERS = ("\u200b", "\u200d", "\u2060", "\ufeff")
_MATHS = {ord(plain): 0x1D41A + index for index, plain in enumerate("abcdefghijklmnopqrstuvwxyz")}
_WIDE = {code: code + 0xFEE0 for code in range(0x21, 0x7F)}


def glued_emoji(text: str, rng: random.Random) -> str:
    """Emoji stuck to most words without a space."""
    return " ".join(word + rng.choice(_EMOJI) if rng.random() < 0.7 else word for word in text.split(" "))


def odd_unicode(text: str, rng: random.Random) -> str:
    """Full-width or mathematical letters and invisible joiners inside words."""
    return " ".join(_oddly(word, rng) for word in text.split(" "))


def unknown_words(text: str, rng: random.Random) -> str:
    """Half of the words become letter strings that no training text had."""
    return " ".join(_invented(word, rng) if rng.random() < 0.5 else word for word in text.split(" "))


def _oddly(word: str, rng: random.Random) -> str:
    dress = rng.randrange(4)
    if dress == 0:
        return word.lower().translate(_MATHS)
    if dress == 1:
        return word.translate(_WIDE)
    return rng.choice(_JOINERS).join(word) if dress == 2 else word


def _invented(word: str, rng: random.Random) -> str:
    return "".join(rng.choice("bdfgjkmpqvwxyz") + rng.choice("aeiouy") for _ in range(max(2, len(word) // 2)))


WAVES: dict[str, Wave] = {"glued emoji": glued_emoji, "odd Unicode": odd_unicode, "unknown words": unknown_words}
"""Every wave by the name that people read."""
