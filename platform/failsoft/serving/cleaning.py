"""What the sanitizer does to dirty text.

Rounds, in this order: halves of surrogate pairs are joined or replaced; controls, bidi marks and invisible characters
go, odd spaces become plain ones; the rest is normalised cluster by cluster; emoji are set apart by spaces and kept
whole. What goes goes before normalisation, so that a letter and its accent meet although something invisible stood
between them; emoji are set apart last, so that what the rounds before made of them counts. Together this makes cleaning
twice the same as cleaning once.
"""

from __future__ import annotations

import functools
import operator
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence

from failsoft.serving import characters
from failsoft.serving.characters import CONTINUING, IN_JOINING_SCRIPT, KIND, REMOVED, Kind
from failsoft.serving.offsets import Edit, Edited, OffsetMap
from failsoft.serving.text_policy import MARKS_SORTED, NormalForm, TextPolicy

Repairs = Counter[str]

_HALF = re.compile(f"[{characters.SURROGATE}]")
_PAIR_OR_HALF = re.compile(f"([\ud800-\udbff])([\udc00-\udfff])|[{characters.SURROGATE}]")
_STRIPPED_KINDS = frozenset(Kind) - {Kind.EMOJI, Kind.ENCLOSER}
_ODD = characters.finder(frozenset(KIND))
_MERGING = characters.finder(frozenset(KIND) | CONTINUING | characters.changed_by_normalising())
_STRIPPED = {ord(char): " " if kind is Kind.SPACE else None for char, kind in KIND.items() if kind in _STRIPPED_KINDS}
_EMOJI_SPLIT = re.compile(f"({_ODD.pattern}(?:{characters.EMOJI_FROM_SECOND}|{characters.KEYCAP_FROM_THIRD}))")
_EMOJI = re.compile(characters.EMOJI)
_NONE: Sequence[Edit] = ()
_KEYCAP_ENDS = "\ufe0f\u20e3"
_KEYCAP = re.compile(characters.KEYCAP)


def wash(text: str, policy: TextPolicy) -> tuple[OffsetMap, Repairs]:
    """The cleaned text with the way back, and how many repairs of each kind; no repairs means the very same text."""
    offsets, repairs = OffsetMap(text), Repairs()
    if _HALF.search(text):
        offsets.apply(_join_halves(text, repairs))
    if not unicodedata.is_normalized(policy.form, offsets.text):
        _make_plain(offsets, policy, repairs)
    _strip(offsets, policy, repairs)
    if _wants_normalising(offsets.text, policy):
        offsets.apply(_normalise(offsets.text, policy, repairs))
    if policy.split_emoji and characters.ENCLOSER in offsets.text:
        offsets.apply(_set_keycaps_apart(offsets.text, repairs))
    return offsets, +repairs  # without those that turned out to be none


def _join_halves(text: str, repairs: Repairs) -> list[Edit]:
    """Two halves side by side are one character; a lone half stands for nothing and becomes U+FFFD."""
    found = list(_PAIR_OR_HALF.finditer(text))
    repairs["surrogates"] += len(found)
    return [(half.start(), half.end(), _whole(half)) for half in found]


def _whole(half: re.Match[str]) -> str:
    return half[0].encode("utf-16", "surrogatepass").decode("utf-16") if half[1] else "\ufffd"


def _make_plain(offsets: OffsetMap, policy: TextPolicy, repairs: Repairs) -> None:
    """Exchange, all at once, the many characters that become one other character."""
    plain = offsets.text.translate(characters.plain_forms(policy.form))
    repairs["normalised"] += sum(map(operator.ne, offsets.text, plain))
    offsets.exchange(plain)


def _strip(offsets: OffsetMap, policy: TextPolicy, repairs: Repairs) -> None:
    """The unseen goes, odd spaces become plain ones, emoji are set apart; what belongs to an emoji stays."""
    text = offsets.text
    if not _ODD.search(text):
        return
    pieces = _EMOJI_SPLIT.split(text)  # text, emoji, text, emoji, … text
    if len(pieces) == 1 and (kept := _thinned(text, repairs)) is not None:
        if kept != text:
            offsets.thin(kept, REMOVED)
        return
    offsets.apply(_strip_pieces(pieces, policy, repairs))


def _thinned(text: str, repairs: Repairs) -> str | None:
    """The text stripped in one go; None when a joiner may have to stay, for which what stands around it matters."""
    kinds = Counter(map(KIND.get, _ODD.findall(text)))
    if Kind.JOINER in kinds and not IN_JOINING_SCRIPT.isdisjoint(text):
        return None
    repairs.update({str(kind): count for kind, count in kinds.items() if kind in _STRIPPED_KINDS})
    return text.translate(_STRIPPED)


def _strip_pieces(pieces: list[str], policy: TextPolicy, repairs: Repairs) -> list[Edit]:
    """Strip the text between emoji, and put a space on each side of an emoji where a word touches it.

    An emoji is a neighbour for which no joiner stays; between two emoji the second one sees to the space.
    """
    raws, emojis = pieces[::2], pieces[1::2]
    words = [(raw, _NONE) if raw.isascii() and raw.isprintable() else _stripped_word(raw, repairs) for raw in raws]
    edits: list[Edit] = []
    begin, before, apart = 0, " ", 0
    for raw, emoji, (word, found), (after, _) in zip(raws, emojis, words, words[1:], strict=False):
        if found:
            edits += _moved(found, begin)
        begin += len(raw)
        end = begin + len(emoji)
        if policy.split_emoji and emoji[0] not in _KEYCAP_ENDS:
            left = "" if (word or before)[-1] == " " else " "
            right = " " if after and after[0] != " " else ""
            if left or right:
                edits.append((begin, end, f"{left}{emoji}{right}"))
                apart += 1
        begin, before = end, emoji
    repairs[Kind.EMOJI] += apart
    return edits + _moved(words[-1][1], begin)


def _moved(edits: Sequence[Edit], by: int) -> list[Edit]:
    return [(start + by, end + by, made) for start, end, made in edits]


def _stripped_word(word: str, repairs: Repairs) -> tuple[str, Sequence[Edit]]:
    edits = list(_strip_piece(word, repairs))
    return Edited(word, edits).text, edits


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


def _set_keycaps_apart(text: str, repairs: Repairs) -> list[Edit]:
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


def _wants_normalising(text: str, policy: TextPolicy) -> bool:
    return (
        not unicodedata.is_normalized(policy.form, text) or _may_be_stacked(policy.max_marks).search(text) is not None
    )


def _normalise(text: str, policy: TextPolicy, repairs: Repairs) -> list[Edit]:
    """Normalise each character together with what may merge with it; what is made points to all of that."""
    edits: list[Edit] = []
    done = 0
    for found in _MERGING.finditer(text):
        at = found.start()
        if at < done:
            continue
        if KIND.get(found[0]) is Kind.EMOJI and (emoji := _EMOJI.match(text, at)):
            done = emoji.end()
            continue
        start, done = _cluster(text, at, done)
        made = _normal_cluster(text[start:done], policy.form, policy.max_expansion, policy.max_marks)
        if made != text[start:done]:
            edits.append((start, done, made))
    repairs["normalised"] += len(edits)
    return edits


def _cluster(text: str, at: int, done: int) -> tuple[int, int]:
    joins_before = text[at] in CONTINUING and at > done and text[at - 1] not in KIND
    end = at + 1
    while end < len(text) and text[end] in CONTINUING:
        end += 1
    return at - joins_before, end


@functools.lru_cache(maxsize=8192)
def _normal_cluster(cluster: str, form: NormalForm, max_expansion: int, max_marks: int) -> str:
    if form == "NFKC" and len(unicodedata.normalize(form, cluster[0])) > max_expansion:
        form = "NFC"  # decided by the first character alone, or a second cleaning might decide otherwise
    made = unicodedata.normalize(form, _stacked(MARKS_SORTED).sub(r"\1", cluster))
    return _stacked(max_marks).sub(r"\1", made)


@functools.cache
def _may_be_stacked(most: int) -> re.Pattern[str]:
    """Quick, and misses no such run."""
    return characters.finder(characters.MARKS, in_a_row=most + 1)


@functools.cache
def _stacked(most: int) -> re.Pattern[str]:
    """More marks in a row than ``most``; group 1 is those that stay."""
    mark = f"[{characters.as_class(characters.MARKS)}]"
    return re.compile(f"({mark}{{{most}}}){mark}+")
