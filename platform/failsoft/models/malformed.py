"""Text as broken senders write it, in six kinds; what a person reads in it stays the same.

Each kind is a pure function of the text and a ``random.Random``. What comes out knows where each of its characters
comes from, so that answers to the malformed text can be held against what is known of the text it was made from.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import NamedTuple

from failsoft.models.corpus import Span

RATE = 0.7
"""Share of the words that are hit, as in the trial on SNIPS that these kinds go back to."""

_PARTS = re.compile(r"\s+|\S+")
_EMOJI = ("\U0001f600", "\U0001f525", "\U0001f44d\U0001f3fd", "\U0001f468\u200d\U0001f469\u200d\U0001f467")
_MORE_EMOJI = ("\U0001f1eb\U0001f1f7", "\u2764\ufe0f", "\U0001f3b5", "\U0001f355", "1\ufe0f\u20e3", "\U0001f64f")
_STYLES = (  # first of 26 capital letters, first of 26 small ones
    (0xFF21, 0xFF41),  # full-width
    (0x1D400, 0x1D41A),  # bold
    (0x1D468, 0x1D482),  # bold italic
    (0x1D5A0, 0x1D5BA),  # sans-serif
    (0x1D670, 0x1D68A),  # monospace
    (0x24B6, 0x24D0),  # circled
)
_CYRILLIC = dict(zip("aeopcyxsijABEKMHOPCTX", "аеорсухѕіјАВЕКМНОРСТХ", strict=True))  # noqa: RUF001 -- that is the point
_SMALL = dict(zip("abcdefghijklmnoprtuvwyz", "ᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘʀᴛᴜᴠᴡʏᴢ", strict=True))
_UNSEEN = ("\u200b", "\u2060", "\ufeff", "\u200d", "\xad", "\ufe0f")
_BIDI = (("\u202e", "\u202c"), ("\u2066", "\u2069"), ("\u200f", ""))
_SPACES = ("\t", "\xa0", "\u3000", "\u2003", "\r\n", "\x0b")
_CONTROLS = ("\x00", "\x07", "\x08", "\x7f", "\x02")


class Kind(StrEnum):
    """What is wrong with the text."""

    GLUED_EMOJI = "glued emoji"
    STYLED = "styled letters"
    """Full-width, mathematical and circled letters."""
    LOOK_ALIKES = "look-alike letters"
    """Cyrillic letters and small capitals in place of Latin ones."""
    UNSEEN = "zero-width and bidi"
    MOJIBAKE = "mojibake"
    """Quotation marks, emoji and no-break spaces, read as Windows-1252 from UTF-8."""
    CONTROLS = "controls and odd spaces"
    """Control characters and terminal colours in words, other white space between them."""


class Piece(NamedTuple):
    """``made`` stands for ``text[start:end]`` of the source; with start = end it was put in between."""

    made: str
    start: int
    end: int


class Malformed(NamedTuple):
    """A malformed text and where it comes from."""

    text: str
    origins: tuple[tuple[int, int], ...]
    """Start and end in the source of what each character stands for; the same place twice for one that was added."""

    def to_source(self, span: Span) -> Span:
        """The span of the source that a span of this text stands for; what was added is no part of it."""
        behind = [(start, end) for start, end in self.origins[span.start : span.end] if start < end]
        return Span(behind[0][0], behind[-1][1], span.slot) if behind else Span(0, 0, span.slot)


def malformed(text: str, kind: Kind, chance: random.Random, *, rate: float = RATE) -> Malformed:
    """The text with ``rate`` of its words hit by ``kind``."""
    made: list[str] = []
    origins: list[tuple[int, int]] = []
    for piece in _pieces(text, _HITS[kind], chance, rate):
        made.append(piece.made)
        same = len(piece.made) == piece.end - piece.start
        origins += (
            [(at, at + 1) for at in range(piece.start, piece.end)]
            if same
            else [(piece.start, piece.end)] * len(piece.made)
        )
    return Malformed("".join(made), tuple(origins))


Hit = Callable[[str, random.Random], Iterable[Piece]]


def _pieces(text: str, hit: Hit, chance: random.Random, rate: float) -> Iterator[Piece]:
    """White space goes to ``hit`` as well: some senders break it."""
    for part in _PARTS.finditer(text):
        at = part.start()
        if chance.random() < rate:
            yield from (Piece(made, start + at, end + at) for made, start, end in hit(part[0], chance))
        else:
            yield Piece(part[0], at, part.end())


def _same(word: str) -> Piece:
    return Piece(word, 0, len(word))


def _around(word: str, before: str, after: str) -> list[Piece]:
    return [Piece(before, 0, 0), _same(word), Piece(after, len(word), len(word))]


def _glued(word: str, chance: random.Random) -> list[Piece]:
    if word.isspace():
        return [_same(word)]
    sides = chance.choice(((0, 1), (0, 1), (1, 0), (1, 1)))
    before, after = (chance.choice(_EMOJI + _MORE_EMOJI) * wanted for wanted in sides)
    return _around(word, before, after)


def _styled(word: str, chance: random.Random) -> list[Piece]:
    capital, small = chance.choice(_STYLES)
    return [_same("".join(_dressed(char, capital, small) for char in word))]


def _dressed(char: str, capital: int, small: int) -> str:
    if "A" <= char <= "Z":
        return chr(capital + ord(char) - ord("A"))
    return chr(small + ord(char) - ord("a")) if "a" <= char <= "z" else char


def _look_alike(word: str, chance: random.Random) -> list[Piece]:
    twins = _SMALL if chance.random() < 0.3 else _CYRILLIC
    return [_same("".join(twins.get(char, char) for char in word))]


def _unseen(word: str, chance: random.Random) -> list[Piece]:
    if word.isspace():
        return [_same(word)]
    if chance.random() < 0.3:
        return _around(word, *chance.choice(_BIDI))
    return _sprinkled(word, chance.choice(_UNSEEN))


def _sprinkled(word: str, between: str) -> list[Piece]:
    """After each character but the last."""
    pieces = [Piece(char, place, place + 1) for place, char in enumerate(word)]
    return [part for piece in pieces for part in (piece, Piece(between, piece.end, piece.end))][:-1] or pieces


def _mojibake(word: str, chance: random.Random) -> list[Piece]:
    if word.isspace():
        return [Piece(_misread("\xa0"), 0, len(word))]
    way = chance.randrange(4)
    if way == 0:
        return _around(word, _misread("\u201c"), _misread("\u201d"))
    if way == 1:
        return _around(word, "", _misread(chance.choice(_EMOJI)))
    if way == 2:
        return _sprinkled(word, _misread("\u200b"))
    return _around(word, _misread("\u2022\xa0"), "")


def _misread(text: str) -> str:
    """UTF-8 read as Windows-1252, the five bytes that it lacks as Latin-1."""
    return "".join(
        bytes([byte]).decode("cp1252", "ignore") or bytes([byte]).decode("latin-1") for byte in text.encode()
    )


def _controls(word: str, chance: random.Random) -> list[Piece]:
    if word.isspace():
        return [Piece(chance.choice(_SPACES), 0, len(word))]
    if chance.random() < 0.3:
        return _around(word, f"\x1b[{chance.choice((1, 31, 32))}m", "\x1b[0m")
    return _sprinkled(word, chance.choice(_CONTROLS))


_HITS: dict[Kind, Hit] = {
    Kind.GLUED_EMOJI: _glued,
    Kind.STYLED: _styled,
    Kind.LOOK_ALIKES: _look_alike,
    Kind.UNSEEN: _unseen,
    Kind.MOJIBAKE: _mojibake,
    Kind.CONTROLS: _controls,
}
