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

from failsoft.serving import characters
from failsoft.serving.characters import CONTINUING, IN_JOINING_SCRIPT, KIND, REMOVED, Kind
from failsoft.serving.offsets import Edit, OffsetMap
from failsoft.serving.text_policy import MARKS_SORTED, NormalForm, TextPolicy

Repairs = Counter[str]

_HALF = re.compile(f"[{characters.SURROGATE}]")
_PAIR_OR_HALF = re.compile(f"([\ud800-\udbff])([\udc00-\udfff])|[{characters.SURROGATE}]")
_EMOJI_KINDS = frozenset({Kind.EMOJI, Kind.ENCLOSER})
_ODD = characters.finder(frozenset(KIND))
_MERGING = characters.finder(frozenset(KIND) | CONTINUING | characters.changed_by_normalising())
_STRIPPED = {ord(char): " " if kind is Kind.SPACE else None for char, kind in KIND.items() if kind not in _EMOJI_KINDS}
_EMOJI = re.compile(characters.EMOJI)
_KEYCAP = re.compile(f"[0-9#*]{characters.KEYCAP_TAIL}")
_KEYCAP_TAIL = re.compile(characters.KEYCAP_TAIL)


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
    if policy.split_emoji and any(map(_is_glued, _KEYCAP.finditer(offsets.text))):
        _strip(offsets, policy, repairs)  # a keycap has come about: its digit was dressed up, or stood apart
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
    """The unseen goes, odd spaces become plain, emoji are set apart; at once where what stands around is no matter."""
    text = offsets.text
    kinds = Counter(map(KIND.get, _ODD.findall(text)))
    kinds.pop(None, 0)
    if not kinds:
        return
    if kinds.keys() & _EMOJI_KINDS or (Kind.JOINER in kinds and not IN_JOINING_SCRIPT.isdisjoint(text)):
        offsets.apply(_strip_by_context(text, policy, repairs))
        return
    repairs.update({str(kind): count for kind, count in kinds.items()})
    offsets.thin(text.translate(_STRIPPED), REMOVED)


def _strip_by_context(text: str, policy: TextPolicy, repairs: Repairs) -> list[Edit]:
    """The same for text in which something invisible may belong to an emoji, or between two letters that need it."""
    edits: list[Edit] = []
    done, last = 0, " "  # all before `done` is dealt with; `last` is what then stands last
    for odd in _ODD.finditer(text):
        at, kind = odd.start(), KIND.get(odd[0])
        if kind is None or at < done:
            continue
        start, end = _emoji_at(text, at, kind)
        before = text[start - 1] if start > done else last
        if end > at:
            made = _apart(text, (start, end), before) if policy.split_emoji else text[start:end]
            kind = Kind.EMOJI
        else:
            end, made = _stripped(text, at, kind)
        if made != text[start:end]:
            edits.append((start, end, made))
            repairs[kind] += 1
        done, last = end, made[-1] if made else before
    return edits


def _is_glued(found: re.Match[str]) -> bool:
    around = found.string[max(0, found.start() - 1) : found.start()] + found.string[found.end() : found.end() + 1]
    return bool(around.strip(" "))


def _emoji_at(text: str, at: int, kind: Kind) -> tuple[int, int]:
    """Where the emoji begins and ends that ``at`` gives away; an empty span if it is none."""
    if kind is Kind.EMOJI:
        found = _EMOJI.match(text, at)
        return (at, found.end()) if found else (at, at)
    tail = _KEYCAP_TAIL.match(text, at)
    return (at - 1, tail.end()) if tail else (at, at)


def _apart(text: str, emoji: tuple[int, int], before: str) -> str:
    """The emoji with a space on each side where a word touches it; an emoji that follows looks before itself."""
    start, end = emoji
    whole = text[start:end] if before == " " else f" {text[start:end]}"
    while text[end : end + 1] in REMOVED:
        end += 1
    after = text[end : end + 1]
    kind = KIND.get(after)
    looks_before = kind is Kind.SPACE or (kind is Kind.EMOJI and _EMOJI.match(text, end))
    return whole if after in ("", " ") or looks_before else f"{whole} "


def _stripped(text: str, at: int, kind: Kind) -> tuple[int, str]:
    """Where a run of the unseen ends, or one odd space, and what stays of it."""
    if kind is Kind.SPACE:
        return at + 1, " "
    end = at
    while text[end : end + 1] in REMOVED:
        end += 1
    if end == at:  # a bare sign that only a variation selector would make an emoji, or an encloser without its digit
        return at + 1, text[at]
    if text[at - 1 : at] in IN_JOINING_SCRIPT and text[end : end + 1] in IN_JOINING_SCRIPT:
        return end, next((char for char in text[at:end] if KIND[char] is Kind.JOINER), "")
    return end, ""


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
