"""What the sanitizer does to dirty text.

Rounds, in this order: halves of surrogate pairs are joined or replaced; controls, bidi marks and invisible characters
go, odd spaces become plain ones; the rest is normalised cluster by cluster; emoji are set apart by spaces and kept
whole. What goes goes before normalisation, so that a letter and its accent meet although something invisible stood
between them; emoji are set apart last, so that what the rounds before made of them counts. Together this makes cleaning
twice the same as cleaning once.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator

from failsoft.serving import characters
from failsoft.serving.offsets import Edit, OffsetMap
from failsoft.serving.text_policy import MARKS_SORTED, NormalForm, TextPolicy

Repairs = Counter[str]

_HALF = re.compile(f"[{characters.SURROGATE}]")
_PAIR_OR_HALF = re.compile(f"([\ud800-\udbff])([\udc00-\udfff])|[{characters.SURROGATE}]")
_SUSPECT = re.compile(f"[\u20e3{characters.SPACE}{characters.REMOVABLE}{characters.EMOJI_START}]")
_DIRT = re.compile(f"{characters.EMOJI}|{characters.KEYCAP_TAIL}|([{characters.REMOVABLE}]+)|([{characters.SPACE}])")
_EMOJI = re.compile(f"{characters.EMOJI}|{characters.KEYCAP_TAIL}")
_CONTROL = re.compile(f"[{characters.CONTROL}]")
_BIDI = re.compile(f"[{characters.BIDI}]")
_JOINER = re.compile(f"[{characters.JOINER}]")
_JOINS = re.compile(f"[{characters.JOINING_SCRIPT}]")


def wash(text: str, policy: TextPolicy) -> tuple[OffsetMap, Repairs]:
    """The cleaned text with the way back, and how many repairs of each kind; no repairs means the very same text."""
    offsets, repairs = OffsetMap(text), Repairs()
    if _HALF.search(text):
        offsets.apply(_join_halves(text, repairs))
    suspect = _SUSPECT.search(offsets.text) is not None
    if suspect:
        offsets.apply(_strip(offsets.text, repairs))
    if _wants_normalising(offsets.text, policy):
        suspect |= offsets.apply(_normalise(offsets.text, policy, repairs))
    if policy.split_emoji and suspect:
        offsets.apply(_set_apart(offsets.text, repairs))
    return offsets, +repairs


def _join_halves(text: str, repairs: Repairs) -> Iterator[Edit]:
    """Two halves side by side are one character; a lone half stands for nothing and becomes U+FFFD."""
    for found in _PAIR_OR_HALF.finditer(text):
        repairs["surrogates"] += 1
        made = found[0].encode("utf-16", "surrogatepass").decode("utf-16") if found[1] else "\ufffd"
        yield Edit(found.start(), found.end(), made)


def _strip(text: str, repairs: Repairs) -> Iterator[Edit]:
    """Remove what is not seen, and make every space a plain one; what belongs to an emoji stays."""
    for found in _DIRT.finditer(text):
        if found[1]:
            kept = _kept_joiner(text, found)
            if kept != found[1]:
                repairs.update(map(_kind, found[1]))
                yield Edit(found.start(), found.end(), kept)
        elif found[2]:
            repairs["spaces"] += 1
            yield Edit(found.start(), found.end(), " ")


def _kind(removed: str) -> str:
    if _CONTROL.match(removed):
        return "controls"
    return "bidi" if _BIDI.match(removed) else "invisible"


def _kept_joiner(text: str, run: re.Match[str]) -> str:
    """Between two letters of a script that needs it, the first joiner of an invisible run stays."""
    joiner = _JOINER.search(run[0])
    between = run.start() and _JOINS.match(text, run.start() - 1) and _JOINS.match(text, run.end())
    return joiner[0] if joiner and between else ""


def _wants_normalising(text: str, policy: TextPolicy) -> bool:
    return not unicodedata.is_normalized(policy.form, text) or bool(_stacked(policy.max_marks).search(text))


def _normalise(text: str, policy: TextPolicy, repairs: Repairs) -> Iterator[Edit]:
    """Normalise each cluster, a character and what may merge with it, by itself; what is made points to all of it."""
    for found in _clusters().finditer(text):
        if found[1]:
            made = _normal_cluster(found[1], policy.form, policy.max_expansion, policy.max_marks)
            if made != found[1]:
                repairs["normalised"] += 1
                yield Edit(found.start(), found.end(), made)


@functools.lru_cache(maxsize=8192)
def _normal_cluster(cluster: str, form: NormalForm, max_expansion: int, max_marks: int) -> str:
    if form == "NFKC" and len(unicodedata.normalize(form, cluster[0])) > max_expansion:
        form = "NFC"  # decided by the first character alone, or a second cleaning might decide otherwise
    made = unicodedata.normalize(form, _stacked(MARKS_SORTED).sub(r"\1", cluster))
    return _stacked(max_marks).sub(r"\1", made)


@functools.cache
def _clusters() -> re.Pattern[str]:
    """Emoji (passed over) or a cluster (group 1) that normalisation might change."""
    goes_on = f"[{characters.continuing_class()}]"
    return re.compile(f"{characters.EMOJI}|([^\0-\x7f]{goes_on}*|[\0-\x7f]{goes_on}+)")


@functools.cache
def _stacked(most: int) -> re.Pattern[str]:
    """More marks in a row than ``most``; group 1 is those that stay."""
    mark = f"[{characters.mark_class()}]"
    return re.compile(f"({mark}{{{most}}}){mark}+")


def _set_apart(text: str, repairs: Repairs) -> Iterator[Edit]:
    """Put spaces around each emoji where there is none."""
    spaced = 0
    for found in _EMOJI.finditer(text):
        start, end = found.start() - (text[found.start()] in "\ufe0f\u20e3"), found.end()
        before = start > spaced and text[start - 1] != " "
        after = end < len(text) and text[end] != " "
        repairs["emoji"] += before or after
        if before:
            yield Edit(start, start, " ")
        if after:
            yield Edit(end, end, " ")
        spaced = end if after else spaced
