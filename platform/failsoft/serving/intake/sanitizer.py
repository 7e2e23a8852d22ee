"""The net before the model: text that it can read, and the way back to what the caller wrote."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple, Protocol

from failsoft.serving.intake.cleaning import wash
from failsoft.serving.intake.offsets import OffsetMap
from failsoft.serving.intake.text_policy import NormalForm, TextPolicy

__all__ = ["Cleaned", "Cleanliness", "NormalForm", "TextPolicy", "sanitize"]

_NOTHING: Mapping[str, int] = {}
_READABLE = re.compile(r"[^\W_]")
"""A letter or a digit of any script."""
_MARK = re.compile(r"[^\w\s]")
_TOKEN = re.compile(r"\w+|[^\w\s]")
"""A word or a punctuation mark: as finely as word tokenizers split."""


class Cleanliness(StrEnum):
    """What the sanitizer had to do."""

    CLEAN = "clean"
    """Nothing."""
    REPAIRED = "repaired"
    HOPELESS = "hopeless"
    """Nothing readable is left, or a length cap is passed: the fallback answers, and it is not the model's fault."""


_USUAL = frozenset({"quotes"})
"""Repairs that the text of any phone may need."""


class Cleaned(NamedTuple):
    """A cleaned text."""

    text: str
    """What the model or the ladder gets; the very same object when nothing was done."""
    verdict: Cleanliness
    repairs: Mapping[str, int] = _NOTHING
    """How many of each: surrogates, mojibake, controls, bidi, invisible, joiners, spaces, normalised, look_alikes,
    emoji, quotes, cut."""
    offsets: OffsetMap | None = None
    """None when nothing was done."""
    oov_share: float | None = None
    """Share of the cleaned text's words that the release's training never held, 0 to 1; None: unknown."""
    why: str = ""
    """What makes it hopeless; empty when nothing does, or nobody says."""

    @property
    def is_malformed(self) -> bool:
        """Whether it took more than healthy senders need: what the share of repaired texts is counted by."""
        return self.verdict is Cleanliness.REPAIRED and not self.repairs.keys() <= _USUAL

    def to_original(self, start: int, end: int) -> tuple[int, int]:
        """The span of the caller's own text behind ``text[start:end]``; within its bounds whatever is asked."""
        if self.offsets is not None:
            return self.offsets.to_original(start, end)
        start = min(max(start, 0), len(self.text))
        return start, min(max(end, start), len(self.text))


class Words(Protocol):
    """Who knows the words of a release."""

    def oov_share(self, text: str) -> float | None:
        """Share of a text's words that training never held, 0 to 1; None for a text without words."""
        ...


def sanitize(text: str, policy: TextPolicy, words: Words | None = None) -> Cleaned:
    """Clean any text; never raises, whatever the text holds. Cleaning what came out clean changes nothing.

    Args:
        text: as the caller wrote it.
        policy: of the release that will read it.
        words: that release's; with them the result says how many words of the text they lack.
    """
    cleaned = _sanitized(text, policy)
    return cleaned if words is None else cleaned._replace(oov_share=words.oov_share(cleaned.text))


def _sanitized(text: str, policy: TextPolicy) -> Cleaned:
    if text.isascii() and text.isprintable() and len(text) <= policy.max_chars:  # all three are plain C
        return _untouched(text, policy)
    if len(text) > policy.max_chars:
        return _cut(text, policy)
    return _cleaned(text, policy)


def _cut(text: str, policy: TextPolicy) -> Cleaned:
    """Over the cap: the ladder gets the cleaned beginning, so that no caller can make the gateway work for ever."""
    cleaned = _cleaned(text[: policy.max_chars], policy)
    repairs = {**cleaned.repairs, "cut": len(text) - policy.max_chars}
    why = _why_hopeless(text, policy)
    return cleaned._replace(verdict=Cleanliness.HOPELESS, repairs=repairs, why=why)


def _cleaned(text: str, policy: TextPolicy) -> Cleaned:
    offsets, repairs = wash(text, policy)
    if not repairs:
        return _untouched(text, policy)
    why = _why_hopeless(offsets.text, policy)
    return Cleaned(
        text=offsets.text,
        verdict=Cleanliness.HOPELESS if why else Cleanliness.REPAIRED,
        repairs={str(kind): count for kind, count in repairs.items()},
        offsets=offsets,
        why=why,
    )


def _untouched(text: str, policy: TextPolicy) -> Cleaned:
    why = _why_hopeless(text, policy)
    return Cleaned(text=text, verdict=Cleanliness.HOPELESS if why else Cleanliness.CLEAN, why=why)


def _why_hopeless(text: str, policy: TextPolicy) -> str:
    """What no model could make up for; empty: nothing is."""
    if len(text) > policy.max_chars:
        return f"the text has {len(text)} characters, no model reads more than {policy.max_chars}"
    if not _READABLE.search(text):
        return "nothing in the text can be read by the model"
    if len(text) * 4 > policy.max_bytes and len(text.encode()) > policy.max_bytes:
        return f"the text has more than {policy.max_bytes} bytes, no model reads so far"
    if len(text) > policy.max_words and _holds_more_tokens(text, policy.max_words):
        return f"the text has more than {policy.max_words} words and signs, no model reads so far"
    return ""


def _holds_more_tokens(text: str, most: int) -> bool:
    """A mark makes two tokens of one at most, besides itself; mostly that bound is enough, and it costs a third."""
    if len(text.split()) + 2 * len(_MARK.findall(text)) <= most:
        return False
    return len(_TOKEN.findall(text)) > most
