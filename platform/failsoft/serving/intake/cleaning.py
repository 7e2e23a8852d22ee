"""What the sanitizer does to dirty text.

Rounds, in this order: halves of surrogate pairs are joined or replaced; mojibake is undone; controls, bidi marks and
invisible characters go, odd spaces become plain ones; the rest is normalised cluster by cluster; emoji are set apart by
spaces and kept whole; look-alikes of Latin letters become those; quotation marks go last, since mojibake is made of
them. What goes goes before normalisation, so that a letter
and its accent meet although something invisible stood between them; keycaps are set apart last, so that what the rounds
before made of them counts. Together this makes cleaning twice the same as cleaning once.

A round looks only at the few different characters that the text holds, to see whether it has anything to do at all.
"""

from __future__ import annotations

import functools
import re
import unicodedata

from failsoft.serving.intake import characters, look_alikes, mojibake
from failsoft.serving.intake.characters import CONTINUING, KIND, MARKS, Kind
from failsoft.serving.intake.offsets import Edit, Edited, OffsetMap
from failsoft.serving.intake.stripping import Repairs, set_keycaps_apart, strip
from failsoft.serving.intake.text_policy import MARKS_SORTED, NormalForm, TextPolicy

_PLAIN = frozenset(map(chr, range(0x20, 0x7F)))
_PAIR_OR_HALF = re.compile(f"([\ud800-\udbff])([\udc00-\udfff])|[{characters.SURROGATE}]")
_HALVES = frozenset(map(chr, range(0xD800, 0xE000)))
_TERMINAL = re.compile("(?:\x1b\\[|\x9b)[0-9;?]*[ -/]*[@-~]")
"""A command to a terminal, such as for a colour (ECMA-48): without its escape the rest would stay as text."""
_KINDED = frozenset(KIND)
_MERGING = characters.finder(_KINDED | CONTINUING | characters.changed_by_normalising())
_MAY_LEAD = mojibake.LEADS | MARKS
"""Only with one of these in the text can mojibake come to light: a letter and its mark may make a lead."""
_QUOTES = dict.fromkeys("\u201c\u201d\u201e\u201f\xab\xbb\u2039\u203a", " ") | dict.fromkeys("\u2018\u2019\u201b", "'")
_EMOJI = re.compile(characters.EMOJI)
_PASSES = 4
"""A repair may uncover something that it hid; each pass leaves less of that."""
_FEW = 8
"""Up to so many different characters are exchanged faster one after another."""
_REMEMBERED = 32
"""Longer clusters are no writing: thousands of them, each as long as a text may be, would fill 130 MB."""
_LAYERS = 8
"""Mojibake of mojibake is met two or three times over. Text made to be misread once more each time it is mended took
8 s for 8,000 characters; what so many layers don't settle nobody has written, and it is left as it is."""


def wash(text: str, policy: TextPolicy) -> tuple[OffsetMap, Repairs]:
    """The cleaned text with the way back, and how many repairs of each kind; no repairs means the very same text."""
    offsets, repairs = OffsetMap(text), Repairs()
    for _ in range(_PASSES):
        before = offsets.text
        odd = _wash_once(offsets, policy, repairs)
        if offsets.text == before or not _may_need_more(offsets.text, odd, policy):
            break
    return offsets, +repairs  # without those that turned out to be none


def _may_need_more(text: str, odd: set[str], policy: TextPolicy) -> bool:
    """What was taken away may have hidden mojibake, and marks that were sorted may have moved away from a joiner."""
    if not (odd.isdisjoint(characters.JOINER) or odd.isdisjoint(characters.IN_JOINING_SCRIPT)):
        return True
    return policy.mend_mojibake and not odd.isdisjoint(_MAY_LEAD) and mojibake.holds_some(text)


def _wash_once(offsets: OffsetMap, policy: TextPolicy, repairs: Repairs) -> set[str]:
    """All rounds; gives what the text held beside plain ASCII when they began, but for what became plain."""
    odd = set(offsets.text) - _PLAIN
    if not odd.isdisjoint(_HALVES):
        offsets.apply(_join_halves(offsets.text, repairs))
        odd = set(offsets.text) - _PLAIN
    if policy.mend_mojibake and not (odd.isdisjoint(mojibake.LEADS) or odd.isdisjoint(mojibake.FOLLOWERS)):
        odd = _mend(offsets, odd, repairs)
    if not odd.isdisjoint("\x1b\x9b"):
        offsets.apply(_without_commands(offsets.text, repairs))
    odd = _make_plain(offsets, odd, policy, repairs)
    if not odd.isdisjoint(_KINDED):
        strip(offsets, odd, policy, repairs)
    if not odd.isdisjoint(MARKS) or not unicodedata.is_normalized(policy.form, offsets.text):
        offsets.apply(_normalise(offsets.text, policy, repairs))
    if policy.fold_look_alikes and not odd.isdisjoint(look_alikes.LETTERS):
        _fold(offsets, policy, repairs)
    if policy.split_emoji and characters.ENCLOSER in odd:
        offsets.apply(set_keycaps_apart(offsets.text, repairs))
    _make_quotes_plain(offsets, odd, policy, repairs)
    return odd


def _join_halves(text: str, repairs: Repairs) -> list[Edit]:
    """Two halves side by side are one character; a lone half stands for nothing and becomes U+FFFD."""
    found = list(_PAIR_OR_HALF.finditer(text))
    repairs["surrogates"] += len(found)
    return [(half.start(), half.end(), _whole(half)) for half in found]


def _whole(half: re.Match[str]) -> str:
    return half[0].encode("utf-16", "surrogatepass").decode("utf-16") if half[1] else "\ufffd"


def _mend(offsets: OffsetMap, odd: set[str], repairs: Repairs) -> set[str]:
    """Undo mojibake, twice over as often as it was made, or none of it; each time the text gets shorter."""
    layers: list[Edited] = []
    text, count = offsets.text, 0
    while edits := list(mojibake.mended(text)):
        if len(layers) == _LAYERS:
            return odd
        layers.append(Edited(text, edits))
        text, count = layers[-1].text, count + len(edits)
    for layer in layers:
        offsets.follow(layer)
    repairs["mojibake"] += count
    return set(text) - _PLAIN if layers else odd


def _without_commands(text: str, repairs: Repairs) -> list[Edit]:
    edits = [(found.start(), found.end(), "") for found in _TERMINAL.finditer(text)]
    repairs[Kind.CONTROL] += len(edits)
    return edits


def _make_plain(offsets: OffsetMap, odd: set[str], policy: TextPolicy, repairs: Repairs) -> set[str]:
    """Exchange, all at once, the many characters that become one other character; the odd ones that are there then."""
    plain = characters.plain_forms(policy.form)
    found = {char: plain[char] for char in odd if char in plain}
    if not found:
        return odd
    repairs["normalised"] += _exchange(offsets, found)
    return odd.difference(found).union(found.values())


def _make_quotes_plain(offsets: OffsetMap, odd: set[str], policy: TextPolicy, repairs: Repairs) -> None:
    if policy.plain_quotes and not odd.isdisjoint(_QUOTES):
        repairs["quotes"] += _exchange(offsets, {char: _QUOTES[char] for char in odd if char in _QUOTES})


def _exchange(offsets: OffsetMap, made: dict[str, str]) -> int:
    """Exchange characters one for one; how many."""
    text = offsets.text
    count = sum(map(text.count, made))
    if len(made) > _FEW:
        offsets.exchange(text.translate({ord(char): other for char, other in made.items()}))
        return count
    for char, other in made.items():
        text = text.replace(char, other)
    offsets.exchange(text)
    return count


def _fold(offsets: OffsetMap, policy: TextPolicy, repairs: Repairs) -> None:
    """Exchange look-alikes; Latin letters may merge with accents that those did not, and touch other look-alikes."""
    while twins := look_alikes.twins_in(offsets.text):
        repairs["look_alikes"] += _exchange(offsets, twins)
        if not unicodedata.is_normalized(policy.form, offsets.text):
            offsets.apply(_normalise(offsets.text, policy, repairs))


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
        normal = _normal_cluster if done - start <= _REMEMBERED else _normal_cluster.__wrapped__
        made = normal(text[start:done], policy.form, policy.max_expansion, policy.max_marks)
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
