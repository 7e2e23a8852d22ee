"""Which words a release knows, for a process that has no model: neither torch nor a tokenizer is loaded."""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path

from failsoft.health.json_object import json_value

SPECIAL = ("[PAD]", "[UNK]")
"""Entries of a tokenizer that are no words."""
_MARKS = string.punctuation + "".join(
    char for char in map(chr, range(0x80, 0x10000)) if unicodedata.category(char)[0] == "P"
)
_WORDS = re.compile(f"[{re.escape(_MARKS)}]|[^\\s{re.escape(_MARKS)}]+")


class Vocabulary:
    """The words of the training texts, in lower case.

    Args:
        words: all of them; punctuation marks are words.
    """

    def __init__(self, words: Iterable[str]) -> None:
        self._words = frozenset(words)

    @classmethod
    def of_codec(cls, path: Path) -> Vocabulary | None:
        """The vocabulary of a release's codec; None where it has none that says which words were in training.

        Another model's codec may be anything, and one of subwords or bytes knows every word and says nothing.
        """
        try:
            model = json_value(path.read_text("utf-8"))["tokenizer"]["model"]
            return cls(set(model["vocab"]).difference(SPECIAL)) if model["type"] == "WordLevel" else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def oov_share(self, text: str) -> float | None:
        """Share of the words of a text that training never held, 0 to 1; None for a text without words.

        The same number as the codec's, but for alphabets beyond U+FFFF. 75 plain words take about 6 µs.
        """
        total = unknown = 0
        known = self._words
        pieces = text.lower().split()
        for piece in pieces:
            if piece not in known:  # mostly a word with a mark at its end; no such thing is in a vocabulary
                for word in _WORDS.finditer(piece):
                    total += 1
                    unknown += word[0] not in known
                total -= 1
        total += len(pieces)
        return unknown / total if total else None


def ascii_words(text: str) -> Iterator[tuple[int, int, str]]:
    """Start, end and lower case of each word and punctuation mark of a printable ASCII text."""
    end = -1
    for piece in text.lower().split(" "):
        start, end = end + 1, end + 1 + len(piece)
        if piece.isalnum():
            yield start, end, piece
        else:
            yield from ((start + word.start(), start + word.end(), word[0]) for word in _WORDS.finditer(piece))
