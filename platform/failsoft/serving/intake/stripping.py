"""The unseen goes, odd spaces become plain ones, and emoji are set apart from words; what belongs to an emoji stays."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from operator import or_

from failsoft.serving.intake import characters
from failsoft.serving.intake.characters import IN_JOINING_SCRIPT, KIND, REMOVED, Kind
from failsoft.serving.intake.offsets import Edit, Edited, OffsetMap
from failsoft.serving.intake.text_policy import TextPolicy

Repairs = Counter[str]
"""How many of each kind."""

_STRIPPED_KINDS = frozenset(Kind) - {Kind.EMOJI, Kind.ENCLOSER}
_STRIPPABLE = frozenset(char for char, kind in KIND.items() if kind in _STRIPPED_KINDS)
_STRIPPED = {ord(char): " " if KIND[char] is Kind.SPACE else "" for char in _STRIPPABLE}
_EMOJI_STARTS = frozenset(KIND) - _STRIPPABLE
_ODD = characters.finder(frozenset(KIND))
_EMOJI_SPLIT = re.compile(f"({_ODD.pattern}(?:{characters.EMOJI_FROM_SECOND}|{characters.KEYCAP_FROM_THIRD}))")
_IN_EMOJI = frozenset(map(chr, [0x200C, 0x200D, 0xFE0E, 0xFE0F, *range(0xE0020, 0xE0080)]))
"""May belong to an emoji, or to letters that it joins; what stands around it decides."""
_ALWAYS_STRIPPED = _STRIPPABLE - _IN_EMOJI
_KEYCAP_ENDS = "\ufe0f\u20e3"
_KEYCAP = re.compile(characters.KEYCAP)
_SEAM = "\x01"
"""Stands for a space that may have to be made; a control, so no stripped text holds it."""
_FEW = 8
"""Up to so many different characters are taken out faster one after another."""


def strip(offsets: OffsetMap, odd: set[str], policy: TextPolicy, repairs: Repairs) -> None:
    """Strip the text and set its emoji apart; ``odd`` is what it holds beside plain ASCII."""
    _thin(offsets, odd & _ALWAYS_STRIPPED, repairs)
    doubtful = odd & _IN_EMOJI
    pieces = [offsets.text] if odd.isdisjoint(_EMOJI_STARTS) else _EMOJI_SPLIT.split(offsets.text)
    if len(pieces) > 1:  # text, emoji, text, emoji, … text
        _strip_pieces(offsets, pieces, doubtful, policy, repairs)
    elif doubtful.isdisjoint(characters.JOINER) or odd.isdisjoint(IN_JOINING_SCRIPT):
        _thin(offsets, doubtful, repairs)
    else:
        offsets.apply(list(_strip_piece(offsets.text, repairs)))


def _thin(offsets: OffsetMap, found: set[str], repairs: Repairs) -> None:
    """Strip all of these in one go."""
    if not found:
        return
    text = offsets.text
    for char in found:
        repairs[KIND[char]] += text.count(char)
    if len(found) > _FEW:
        text = text.translate({ord(char): _STRIPPED[ord(char)] for char in found})
    else:
        for char in found:
            text = text.replace(char, _STRIPPED[ord(char)])
    offsets.thin(text, frozenset(found & REMOVED))


def _strip_pieces(
    offsets: OffsetMap, pieces: list[str], doubtful: set[str], policy: TextPolicy, repairs: Repairs
) -> None:
    """Strip the text between emoji, and put a space on each side of an emoji where a word touches it.

    An emoji is a neighbour for which no joiner stays; between two emoji the second one sees to the space. The way back
    is laid out when it is first asked for: most texts have no entity.
    """
    raws = pieces[::2]
    edits = {
        place: list(_strip_piece(raw, repairs))
        for place, raw in enumerate(raws)
        if not (raw.isascii() or doubtful.isdisjoint(raw))
    }
    for place, found in edits.items():
        pieces[2 * place] = Edited(raws[place], found).text
    if not policy.split_emoji:
        offsets.rework("".join(pieces), lambda: list(_pieces_edits(raws, pieces, edits, [], [])))
        return
    lefts, rights = _touching(pieces)
    repairs[Kind.EMOJI] += sum(map(or_, lefts, rights))
    offsets.rework(_apart(pieces), lambda: list(_pieces_edits(raws, pieces, edits, lefts, rights)))


def _touching(pieces: list[str]) -> tuple[list[bool], list[bool]]:
    """For each emoji whether it needs a space before it, and after it. Keycaps are seen to later."""
    words, emojis = pieces[::2], pieces[1::2]
    lefts = [word[-1:] != " " for word in words]
    rights = [word[:1] > " " for word in words[1:]]
    lefts.pop()
    lefts[0] &= bool(words[0])
    for place, emoji in enumerate(emojis):
        if emoji[0] in _KEYCAP_ENDS:
            lefts[place] = rights[place] = False
    return lefts, rights


def _apart(pieces: list[str]) -> str:
    """All pieces in a row, with a space wherever :func:`_touching` wants one; by a few passes in C over the whole."""
    text = _SEAM.join(pieces)
    if characters.ENCLOSER in text:
        text = _SEAM.join(_with_whole_keycaps(pieces))
    text = text.replace(f" {_SEAM}", " ").replace(f"{_SEAM} ", " ").replace(_SEAM + _SEAM, _SEAM)
    return text.strip(_SEAM).replace(_SEAM, " ")


def _with_whole_keycaps(pieces: Sequence[str]) -> list[str]:
    """The same pieces, but that the end of a keycap and what follows stays with the digit before it."""
    whole = [pieces[0]]
    for emoji, word in zip(pieces[1::2], pieces[2::2], strict=True):
        if emoji[0] in _KEYCAP_ENDS:
            whole[-1] += emoji + word
        else:
            whole += (emoji, word)
    return whole


def _pieces_edits(
    raws: Sequence[str],
    pieces: Sequence[str],
    edits: Mapping[int, Sequence[Edit]],
    lefts: Sequence[bool],
    rights: Sequence[bool],
) -> Iterator[Edit]:
    """What :func:`_apart` did to the text, piece by piece; without spaces if ``lefts`` is empty."""
    at = 0
    for place, raw in enumerate(raws):
        yield from ((start + at, end + at, made) for start, end, made in edits.get(place, ()))
        at += len(raw)
        if place == len(raws) - 1:
            return
        emoji = pieces[2 * place + 1]
        if lefts and (lefts[place] or rights[place]):
            yield at, at + len(emoji), f"{' ' * lefts[place]}{emoji}{' ' * rights[place]}"
        at += len(emoji)


def _strip_piece(piece: str, repairs: Repairs) -> Iterator[Edit]:
    done = 0
    for odd in _ODD.finditer(piece):
        at, kind = odd.start(), KIND.get(odd[0])
        if at < done or kind not in _STRIPPED_KINDS:
            continue
        done, made = _stripped(piece, at, odd[0])
        if made != piece[at:done]:
            repairs[kind] += 1
            yield at, done, made


def _stripped(text: str, at: int, odd: str) -> tuple[int, str]:
    """Where a run of the unseen ends, or one odd space, and what stays of it."""
    if odd not in REMOVED:
        return at + 1, " "
    end = at
    while text[end : end + 1] in REMOVED:
        end += 1
    if text[max(0, at - 1) : at] in IN_JOINING_SCRIPT and text[end : end + 1] in IN_JOINING_SCRIPT:
        return end, next((char for char in text[at:end] if KIND[char] is Kind.JOINER), "")
    return end, ""


def set_keycaps_apart(text: str, repairs: Repairs) -> list[Edit]:
    """Spaces around keycaps; last, since their digit may come about in any round."""
    edits: list[Edit] = []
    done = 0
    for keycap in _KEYCAP.finditer(text):
        start, end = keycap.span()
        before = " " if start > done and text[start - 1] != " " else ""
        after = " " if end < len(text) and text[end] != " " else ""
        if before or after:
            edits.append((start, end, f"{before}{keycap[0]}{after}"))
        done = end if after else 0
    repairs[Kind.EMOJI] += len(edits)
    return edits
