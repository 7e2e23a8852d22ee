"""Kinds of characters, as the sanitizer sees them: what is removed, what is an emoji, what belongs to the one before.

Emoji follow the grammar of UTS #51 (possible emoji sequences) over Extended_Pictographic of Unicode 15.1; the rest
comes from the interpreter's own ``unicodedata``, so that it fits what ``unicodedata.normalize`` does.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterable
from enum import StrEnum
from typing import Literal

SURROGATE = "\ud800-\udfff"
SPACE = "\t-\r\x1c-\x1f\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
"""White space other than the plain space."""
CONTROL = "\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f"
BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
JOINER = "\u200c\u200d"
_NONCHARACTER = "\ufdd0-\ufdef" + "".join(
    f"{chr(plane + 0xFFFE)}{chr(plane + 0xFFFF)}" for plane in range(0, 0x110000, 0x10000)
)
INVISIBLE = (
    "\xad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u2060-\u2065\u206a-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0"
    "\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff" + _NONCHARACTER
)
JOINING_SCRIPT = "\u0600-\u0dff\u1000-\u109f\u1780-\u17d3\u1800-\u18aa"
"""Scripts in which a joiner between two letters changes how a word reads: Arabic, the Indic ones, Mongolian."""

_PICTOGRAPH = (
    "\u2194-\u2199\u21a9\u21aa\u231a\u231b\u2328\u2388\u23cf\u23e9-\u23f3\u23f8-\u23fa\u25aa\u25ab\u25b6\u25c0"
    "\u25fb-\u25fe\u2600-\u2605\u2607-\u2612\u2614-\u2685\u2690-\u2705\u2708-\u2712\u2714\u2716\u271d\u2721\u2728"
    "\u2733\u2734\u2744\u2747\u274c\u274e\u2753-\u2755\u2757\u2763-\u2767\u2795-\u2797\u27a1\u27b0\u27bf\u2934\u2935"
    "\u2b05-\u2b07\u2b1b\u2b1c\u2b50\u2b55\U0001f000-\U0001f0ff\U0001f10d-\U0001f10f\U0001f12f"
    "\U0001f16c-\U0001f171\U0001f17e\U0001f17f\U0001f18e\U0001f191-\U0001f19a\U0001f1ad-\U0001f1e5"
    "\U0001f201-\U0001f20f\U0001f21a\U0001f22f\U0001f232-\U0001f23a\U0001f23c-\U0001f23f\U0001f249-\U0001f3ff"
    "\U0001f400-\U0001f53d\U0001f546-\U0001f64f\U0001f680-\U0001f6ff\U0001f774-\U0001f77f\U0001f7d5-\U0001f7ff"
    "\U0001f80c-\U0001f80f\U0001f848-\U0001f84f\U0001f85a-\U0001f85f\U0001f888-\U0001f88f\U0001f8ae-\U0001f8ff"
    "\U0001f90c-\U0001f93a\U0001f93c-\U0001f945\U0001f947-\U0001faff\U0001fc00-\U0001fffd"
)
"""Also the five skin tones, which stand alone now and then."""
_EMOJI_IF_TOLD = "\xa9\xae\u203c\u2049\u2122\u2139\u24c2\u3030\u303d\u3297\u3299"
"""Letters and signs that are emoji only with a variation selector: a bare trade mark sign is text."""
_FLAG_HALF = "\U0001f1e6-\U0001f1ff"
_SKIN_TONE = "\U0001f3fb-\U0001f3ff"
_TAGGED = "[\U000e0020-\U000e007e]+\U000e007f"
_ELEMENT = (
    f"(?:[{_FLAG_HALF}]{{1,2}}|[{_PICTOGRAPH}](?:[{_SKIN_TONE}]|\ufe0f\u20e3?|{_TAGGED})?|[{_EMOJI_IF_TOLD}]\ufe0f)"
)
EMOJI = f"{_ELEMENT}(?:\u200d{_ELEMENT})*"
"""One emoji as people see it, but for keycaps: joined by ZWJ, with skin tone, flags of two halves or of tags."""
EMOJI_FROM_SECOND = (
    f"(?:(?<=[{_PICTOGRAPH}])(?:[{_SKIN_TONE}]|\ufe0f\u20e3?|{_TAGGED})?|(?<=[{_FLAG_HALF}])[{_FLAG_HALF}]?"
    f"|(?<=[{_EMOJI_IF_TOLD}])\ufe0f)(?:\u200d{_ELEMENT})*"
)
"""The same, to be put behind a class that finds its first character: ``re`` skips plain text ten times faster then."""
KEYCAP = "[0-9#*]\ufe0f?\u20e3"
KEYCAP_FROM_THIRD = "(?<=[0-9#*]\ufe0f)\u20e3|(?<=[0-9#*]\u20e3)"
"""What makes a keycap of the digit before it, behind a class that finds the character after the digit."""
ENCLOSER = "\u20e3"


class Kind(StrEnum):
    """What a character that is not plain counts as."""

    SPACE = "spaces"
    CONTROL = "controls"
    BIDI = "bidi"
    INVISIBLE = "invisible"
    JOINER = "joiners"
    EMOJI = "emoji"
    ENCLOSER = "enclosers"


def _members(inside: str) -> list[str]:
    """The characters of a class, given as what stands between the brackets."""
    found = re.findall("(.)-(.)|(.)", inside, re.DOTALL)
    return [chr(code) for first, last, one in found for code in range(ord(first or one), ord(last or one) + 1)]


_BY_KIND = {
    Kind.SPACE: SPACE,
    Kind.CONTROL: CONTROL,
    Kind.BIDI: BIDI,
    Kind.INVISIBLE: INVISIBLE,
    Kind.JOINER: JOINER,
    Kind.EMOJI: _FLAG_HALF + _PICTOGRAPH + _EMOJI_IF_TOLD,
    Kind.ENCLOSER: ENCLOSER,
}
KIND: dict[str, Kind] = {char: kind for kind, inside in _BY_KIND.items() for char in _members(inside)}
"""The kind of every character that has one."""
REMOVED = frozenset(
    char for char, kind in KIND.items() if kind in {Kind.CONTROL, Kind.BIDI, Kind.INVISIBLE, Kind.JOINER}
)
IN_JOINING_SCRIPT = frozenset(_members(JOINING_SCRIPT))

_DECOMPOSING = range(0x300, 0x20000)
"""No character outside merges with the one before it; a test looks at all of Unicode."""


def _composed_second(code: int) -> str | None:
    """The second half of a canonical composition, if this code point is one."""
    parts = unicodedata.decomposition(chr(code)).split()
    return chr(int(parts[1], 16)) if len(parts) == 2 and not parts[0].startswith("<") else None


def _continuing() -> frozenset[str]:
    seconds = set(filter(None, map(_composed_second, _DECOMPOSING)))
    seconds.update(map(chr, [*range(0x1161, 0x1176), *range(0x11A8, 0x11C3)]))  # Hangul composes by rule
    return frozenset(char for char in map(chr, _DECOMPOSING) if _continues(char, seconds))


def _continues(char: str, seconds: set[str]) -> bool:
    if unicodedata.combining(char) or char in seconds:
        return True
    if not unicodedata.decomposition(char):
        return False
    first = unicodedata.normalize("NFKD", char)[0]
    return unicodedata.combining(first) > 0 or first in seconds


CONTINUING = _continuing()
"""Characters that normalisation may merge with the one before; a cut before any other is safe."""
MARKS = frozenset(char for char in CONTINUING if unicodedata.combining(char))
"""Combining marks: what normalisation sorts, and what mischievous text stacks upon one letter without end."""


@functools.cache
def plain_forms(form: Literal["NFC", "NFKC"]) -> dict[str, str]:
    """What normalisation makes one other character, whatever stands around it."""
    changed = (code for code in range(0x80, 0x30000) if not unicodedata.is_normalized(form, chr(code)))
    made = ((code, unicodedata.normalize(form, chr(code))) for code in changed if not 0xD800 <= code <= 0xDFFF)
    return {
        chr(code): plain
        for code, plain in made
        if len(plain) == 1 and chr(code) not in KIND and not {plain, chr(code)} & CONTINUING
    }


def changed_by_normalising() -> frozenset[str]:
    """Characters of the first plane that NFKC changes; NFC changes fewer."""
    return frozenset(char for char in map(chr, range(0x80, 0x10000)) if not unicodedata.is_normalized("NFKC", char))


def as_class(chars: Iterable[str]) -> str:
    """The inside of a regular expression's character class for some characters."""
    spans: list[list[int]] = []
    for code in sorted(map(ord, chars)):
        if spans and spans[-1][1] == code - 1:
            spans[-1][1] = code
        else:
            spans.append([code, code])
    return "".join(f"{re.escape(chr(first))}-{re.escape(chr(last))}" for first, last in spans)


def finder(wanted: frozenset[str], *, in_a_row: int = 1) -> re.Pattern[str]:
    """Finds every wanted character, and every character beyond U+FFFF whether wanted or not; or so many in a row.

    ``re`` looks a character up in one step when its class lies within the first plane, and walks through the ranges
    of a class otherwise, which is ten times slower on plain text. Hence the odd form: not one of the unwanted below.
    """
    unwanted = as_class(char for char in map(chr, range(0x10000)) if char not in wanted)
    return re.compile(f"[^{unwanted}]{{{in_a_row}}}")
