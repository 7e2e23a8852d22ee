r"""Which patterns can take for ever: Python's matcher tries every way to divide a text, and holds the whole process.

Two ways to match one text within a repeat (``(a+)+b``), and each more character doubles the ways. Repeats that can hand
characters on to each other (``\w+\s*\w*x``) make them grow with a power of the length, and so does where a match may
begin. Both are told from the pattern's places: Weber and Seidl, "On the degree of ambiguity of finite automata", 1991.
What is told is cautious: it finds some that are harmless, too, but none that takes long passes.
"""

from __future__ import annotations

import importlib
import math
import re
from collections import deque
from collections.abc import Iterable, Set
from itertools import product
from typing import Any

from failsoft.models.pattern_places import EVERYTHING, WORD, Places, TooLargeError

Pair = tuple[int, int]
Triple = tuple[int, ...]

_PARSER: Any = importlib.import_module("re._parser")
MOST_STEPS = 1_000_000
"""Of the matcher, each of a tail or so: 10 to 300 ms of one core in a text that is made for it."""
_MOST_COMPARED = 64
"""Pairs of places in two loops; larger ones are taken to hand on each character."""
_MOST_LOOKED_AT = 200_000
"""States of a search; a pattern that needs more is taken for one that takes long."""


def may_take_for_ever(pattern: str, *, chars: int) -> bool:
    """Whether finding it, or that it is not there, may take more than ``MOST_STEPS`` in a text of so many characters.

    Raises:
        re.error: it is no pattern.
    """
    try:
        return not _steps(_PARSER.parse(pattern), chars, anywhere=True) <= MOST_STEPS
    except (RecursionError, TooLargeError):
        return True


def _steps(nodes: Any, chars: int, *, anywhere: bool) -> float:
    """Ways to begin, times ways to go on; and each of them looks into the parts that give nothing back."""
    places = Places.of(nodes)
    if places.divides or _doubles(places):
        return math.inf
    within = max((_steps(inner, chars, anywhere=False) for inner in places.inner), default=1.0)
    all_ = range(len(places.takes))
    forks = sum(_meets_again(places, place) for place in set(all_).difference(*_loops(places, all_)))
    if anywhere:
        _may_begin_anywhere(places, nodes)
    return _ways(places, chars) * within * 2.0 ** min(forks, 100)


def _may_begin_anywhere(places: Places, nodes: Any) -> None:
    """What stands before a match is a loop, too: from each of its places it is tried anew."""
    head = str(nodes[0][1]) if len(nodes) and str(nodes[0][0]) == "AT" else ""
    if head in ("AT_BEGINNING", "AT_BEGINNING_STRING") and not nodes.state.flags & re.MULTILINE:
        return
    before = places.place(EVERYTHING)
    places.follow[before][before] = 1
    if head == "AT_BOUNDARY" and all(places.takes[place] <= WORD for place in places.first):
        gap = places.place(EVERYTHING - WORD)
        places.follow[before][gap] = 1
        before = gap
    places.follow[before].update(places.first)


def _doubles(places: Places) -> bool:
    """Whether from some place there are two ways back to it with one text."""
    return any(
        any(places.follow[place][after] > 1 for place in loop for after in loop)
        or _come_together(places, {(place, place) for place in loop}, within=loop)
        for loop in _loops(places, range(len(places.takes)))
    )


def _meets_again(places: Places, place: int) -> bool:
    """Whether two ways lead on from a place, outside a loop, that come together with one text."""
    after = [one for one in places.follow[place] if one not in places.ends]
    ways = {(one, other) for one in after for other in after if one < other and places.takes[one] & places.takes[other]}
    return _come_together(places, ways, within=frozenset(range(len(places.takes))))


def _come_together(places: Places, begin: Set[Pair], *, within: frozenset[int]) -> bool:
    """Whether two places that lie apart are reached from these with one text, and one place from both with one more."""
    seen, ahead = set(begin), list(begin)
    while ahead:
        one, other = ahead.pop()
        for pair in product(places.follow[one], places.follow[other]):
            if pair in seen and not (pair[0] == pair[1] and one != other):
                continue
            if within.issuperset(pair) and places.takes[pair[0]] & places.takes[pair[1]]:
                if pair[0] == pair[1] and one != other:
                    return True
                seen.add(pair)
                ahead.append(pair)
        if len(seen) > _MOST_LOOKED_AT:
            raise TooLargeError
    return False


def _ways(places: Places, chars: int) -> float:
    """Of dividing a text among loops that hand on to each other, the worst row of them; those that end never fail."""
    alive = [place for place in range(len(places.takes)) if place not in places.ends]
    loops = _loops(places, alive)
    best = {loop: (float(chars), 1) for loop in loops}
    for loop, after in ((loop, after) for place, loop in enumerate(loops) for after in loops[place + 1 :]):
        text = _handing_on(places, loop, after, frozenset(alive))
        if text is not None:
            ways, row = best[loop]
            best[after] = max(best[after], (ways * chars / text / (row + 1), row + 1))
    return max((ways for ways, _ in best.values()), default=1.0)


def _loops(places: Places, among: Iterable[int]) -> list[frozenset[int]]:
    """Places that come after themselves, in groups; a group comes before those that it leads to."""
    inside = set(among)
    reached = {place: _reached(places, place, inside) for place in inside}
    groups = {
        frozenset(other for other in reached[place] if place in reached[other])
        for place in inside
        if place in reached[place]
    }
    return sorted(groups, key=lambda group: -len(reached[next(iter(group))]))


def _reached(places: Places, place: int, inside: Set[int]) -> set[int]:
    found: set[int] = set()
    ahead = [place]
    while ahead:
        new = {after for after in places.follow[ahead.pop()] if after in inside and after not in found}
        found |= new
        ahead += new
    return found


def _handing_on(places: Places, loop: frozenset[int], after: frozenset[int], alive: frozenset[int]) -> int | None:
    """Characters of the shortest text with which one stays in either of two loops, and gets from one to the other."""
    if len(loop) * len(after) > _MOST_COMPARED:
        return 1
    found = [
        _shortest(places, (one, one, other), (one, other, other), (loop, alive, after))
        for one in loop
        for other in after
    ]
    return min((chars for chars in found if chars is not None), default=None)


def _shortest(places: Places, begin: Triple, end: Triple, within: tuple[frozenset[int], ...]) -> int | None:
    ahead, seen = deque([(begin, 0)]), {begin}
    while ahead:
        (one, between, other), chars = ahead.popleft()
        for triple in product(*(places.follow[place] for place in (one, between, other))):
            if triple in seen or not all(place in allowed for place, allowed in zip(triple, within, strict=True)):
                continue
            if places.takes[triple[0]] & places.takes[triple[1]] & places.takes[triple[2]]:
                if triple == end:
                    return chars + 1
                seen.add(triple)
                ahead.append((triple, chars + 1))
        if len(seen) > _MOST_LOOKED_AT:
            raise TooLargeError
    return None
