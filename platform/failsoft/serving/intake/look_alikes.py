"""Letters of other alphabets that stand in for Latin ones: ``play`` with three Cyrillic letters still reads so.

After the idea of skeletons in UTS #39, but with few letters and a strict rule, so that no text in those alphabets
suffers: an alphabet's letters are exchanged only when one of them touches a Latin letter, and only when *every* letter
of that alphabet in the text has a Latin twin. A Russian sentence has others (``и``, ``ж``, ``т``) and is left alone; so
is the name of Moscow in capitals beside ``Hilton``, though all its six letters have twins. Whole words of small
capitals go as well: nobody writes in them.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

from failsoft.serving.intake.characters import as_class

_LATIN = frozenset(string.ascii_letters)


@dataclass(frozen=True, kw_only=True)
class Alphabet:
    """Letters of one kind, and the Latin twins of some."""

    letters: frozenset[str]
    twins: dict[str, str]
    touching: re.Pattern[str] | None
    """One of the letters beside a Latin one; None: these letters stand in for those by whole words, too."""


def _alphabet(spans: Iterable[tuple[int, int]], foreign: str, latin: str, *, by_whole_words: bool = False) -> Alphabet:
    codes = [code for first, last in spans for code in range(first, last + 1)]
    letters = frozenset(char for char in map(chr, codes) if unicodedata.category(char)[0] == "L")
    one = f"[{as_class(letters)}]"
    touching = None if by_whole_words else re.compile(f"(?<=[A-Za-z]){one}|{one}(?=[A-Za-z])")
    return Alphabet(letters=letters, twins=dict(zip(foreign, latin, strict=True)), touching=touching)


_CYRILLIC = _alphabet(
    [(0x400, 0x52F)],
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0455\u0456\u0458\u04bb\u0501\u051b\u051d\u0475\u04cf\u04af"
    "\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0423\u0425\u0405\u0406\u0408\u051a\u051c\u04ae",
    "aeopcyxsijhdqwvlyABEKMHOPCTYXSIJQWY",
)
_GREEK = _alphabet(
    [(0x370, 0x3FF), (0x1F00, 0x1FFF)],
    "\u03bf\u03b1\u03c1\u03bd\u03b9\u03c5\u03ba\u03c7\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1"
    "\u03a4\u03a5\u03a7",
    "oapviukxABEZHIKMNOPTYX",
)
_ARMENIAN = _alphabet([(0x531, 0x587)], "\u0585\u057d\u0570\u0581\u0578", "ouhgn")
_SMALL_CAPITALS = _alphabet(
    [(0x250, 0x2AF), (0x1D00, 0x1D2B), (0xA730, 0xA731)],
    "\u1d00\u0299\u1d04\u1d05\u1d07\ua730\u0262\u029c\u026a\u1d0a\u1d0b\u029f\u1d0d\u0274\u1d0f\u1d18\u0280\ua731\u1d1b"
    "\u1d1c\u1d20\u1d21\u028f\u1d22\u0251\u0261",
    "abcdefghijklmnoprstuvwyzag",
    by_whole_words=True,
)
"""A text in phonetic script has letters without a twin (``ə``, ``ʃ``) and is left alone."""
ALPHABETS = (_CYRILLIC, _GREEK, _ARMENIAN, _SMALL_CAPITALS)
LETTERS = frozenset().union(*(alphabet.letters for alphabet in ALPHABETS))
"""A text without any of these has nothing to exchange."""


def twins_in(text: str) -> dict[str, str]:
    """What to exchange in a text; usually nothing. What comes of it may have more to exchange."""
    chars = set(text)
    if chars.isdisjoint(_LATIN):
        return {}
    found: dict[str, str] = {}
    for alphabet in ALPHABETS:
        present = chars & alphabet.letters
        if present <= alphabet.twins.keys() and (alphabet.touching is None or alphabet.touching.search(text)):
            found.update((char, alphabet.twins[char]) for char in present)
    return found
