"""UTF-8 that somebody read as Latin-1 or Windows-1252: ``cafÃ©`` for ``café``, ``ðŸ”¥`` for a flame.

Undone only where the bytes behind the characters are UTF-8 without a flaw, so the way back is exact, and only where
nobody would have written the characters themselves: ``«CAFÉ»`` ends in a pair that is UTF-8 too, ``“allé…”`` and
``manhã –`` with a no-break space in a triple. After the idea of ftfy (Speer 2019), with fewer forms.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

from failsoft.serving.intake.offsets import Edit


def _windows() -> dict[str, int]:
    """Bytes 0x80 to 0x9f as Windows-1252 shows them; five are controls there as in Latin-1."""
    shown = {bytes([code]).decode("cp1252", "ignore"): code for code in range(0x80, 0xA0)}
    return {char: code for char, code in shown.items() if char}


_BYTE = _windows()
_AS_LATIN1 = {ord(char): code for char, code in _BYTE.items()}
_CLOSERS = "\xbb\u201d\u2019\u2026\u2013\u2014\u2122\xae\xa9\u203a\xb0\u201c\u2018\xab"
"""What may well stand behind a word."""
_BEHIND = f"[{_CLOSERS}\xa0]"
"""The same, or the no-break space that French and Portuguese set before it."""
_C = f"[\x80-\xbf{''.join(_BYTE)}]"
_CAPITAL = "A-Z\xc0-\xd6\xd8-\xde"
_MOJIBAKE = re.compile(
    f"(?=[\xc2-\xf0]{_C})(?:"  # passes over plain text quickly
    f"(?:[\xc2-\xdf]{_C}|[\xe0-\xef]{_C}{_C}|\xf0{_C}{_C}{_C}){{2,}}"  # several in a row are no chance
    f"|\xf0(?!{_BEHIND}{{3}}){_C}{_C}{_C}"
    f"|[\xe2\xe3\xef](?!{_BEHIND}{{2}}){_C}{_C}"
    f"|(?<![{_CAPITAL}])[\xc2\xc3]{_C}"
    f"|[\xc2\xc3](?![{_CLOSERS}])(?!(?<=[{_CAPITAL}]{{2}}\xc3)\xa0){_C})"  # MAÇÃ before a no-break space
)
_MAYBE = re.compile(f"[\xc2-\xf0]{_C}")
"""Much faster where there is nothing to find."""
_REMEMBERED = 64
"""Longer runs hardly come twice, and thousands of them would fill 100 MB."""
LEADS = frozenset(map(chr, range(0xC2, 0xF1)))
"""A text without any of these holds none."""
FOLLOWERS = frozenset(map(chr, range(0x80, 0xC0))) | _BYTE.keys()
"""Likewise."""


def holds_some(text: str) -> bool:
    """Whether there is something to mend."""
    return next(mended(text), None) is not None


def mended(text: str) -> Iterator[Edit]:
    """What to exchange for the characters that were meant."""
    if not _MAYBE.search(text):
        return
    for found in _MOJIBAKE.finditer(text):
        meant = (_meant if len(found[0]) <= _REMEMBERED else _meant.__wrapped__)(found[0])
        if meant is not None:
            yield found.start(), found.end(), meant


@functools.lru_cache(maxsize=4096)
def _meant(garbled: str) -> str | None:
    try:
        return garbled.translate(_AS_LATIN1).encode("latin-1").decode("utf-8")
    except ValueError:
        return None
