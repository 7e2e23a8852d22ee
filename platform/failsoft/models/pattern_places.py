"""A pattern as its places: which character each one takes, and which may come next (Glushkov's automaton).

Characters are told apart one by one in ASCII, and by their kind beyond it: digit, letter, blank, none of these. A range
beyond it may hold some of each. Upper and lower case are the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_FEW, _MANY = 3, 16
"""A repeat that leaves more open than a few times, or is of many, is taken for one without end; so is one of what may
be of several lengths."""
MOST_PLACES = 400
_ASCII = frozenset(map(chr, range(128)))
_KINDS = {"DIGIT": frozenset({"digit"}), "WORD": frozenset({"digit", "letter"}), "SPACE": frozenset({"blank"})}
_TOLD: dict[str, Callable[[str], bool]] = {
    "DIGIT": str.isdecimal,
    "WORD": lambda char: char.isalnum() or char == "_",
    "SPACE": str.isspace,
}
_REST = frozenset({"digit", "letter", "blank", "none"})
EVERYTHING = _ASCII | _REST
WORD = frozenset(filter(_TOLD["WORD"], _ASCII)) | _KINDS["WORD"]


class TooLargeError(Exception):
    """A pattern of more places than are looked at."""


@dataclass
class _Part:
    """Where a part of a pattern begins and ends; ``last`` says of each place whether no condition follows it."""

    nullable: bool
    first: set[int]
    last: dict[int, bool]


@dataclass
class Places:
    """Of one pattern. ``follow`` counts in how many ways a place may come after another: two are told apart nowhere."""

    takes: list[frozenset[str]] = field(default_factory=list)
    follow: list[Counter[int]] = field(default_factory=list)
    first: set[int] = field(default_factory=set)
    ends: set[int] = field(default_factory=set)
    """After these the whole matches, whatever comes."""
    inner: list[Any] = field(default_factory=list)
    """Parts that give nothing back: they are patterns of their own."""
    divides: bool = False
    """A repeat of what may be empty, or alternatives that may: there is no end of the ways to do that in a loop."""

    @classmethod
    def of(cls, nodes: Any) -> Places:
        """Raises TooLargeError, or RecursionError where parts are nested too deeply."""
        made = cls()
        whole = made._sequence(nodes)
        made.first, made.ends = whole.first, {place for place, sure in whole.last.items() if sure}
        return made

    def place(self, takes: frozenset[str]) -> int:
        """One more."""
        if len(self.takes) >= MOST_PLACES:
            raise TooLargeError
        self.takes.append(takes)
        self.follow.append(Counter())
        return len(self.takes) - 1

    def _one(self, takes: frozenset[str]) -> _Part:
        place = self.place(takes)
        return _Part(nullable=False, first={place}, last={place: True})

    def _sequence(self, nodes: Iterable[tuple[Any, Any]]) -> _Part:
        whole = _nothing()
        for kind, given in nodes:
            is_condition = str(kind) in ("AT", "ASSERT", "ASSERT_NOT")
            whole = self._joined(whole, self._part(str(kind), given), is_condition=is_condition)
        return whole

    def _joined(self, one: _Part, other: _Part, *, is_condition: bool = False) -> _Part:
        self._lead(one, other)
        first = one.first | other.first if one.nullable else one.first
        last = dict(other.last)
        for place, sure in one.last.items() if other.nullable else ():
            last[place] = last.get(place, False) or (sure and not is_condition)
        return _Part(nullable=one.nullable and other.nullable, first=first, last=last)

    def _lead(self, one: _Part, other: _Part) -> None:
        for place in one.last:
            self.follow[place].update(other.first)

    def _part(self, kind: str, given: Any) -> _Part:
        make = _PARTS.get(kind)
        return self._one(_taken(kind, given)) if make is None else make(self, given)

    def _condition(self, given: Any) -> _Part:
        """Where in the text one is, or what comes before or after; that is a pattern of its own."""
        self.inner += [given[1]] if isinstance(given, tuple) else []
        return _nothing()

    def _said_before(self, _given: Any) -> _Part:
        """Whatever a group took."""
        return self._repeated(0, _MANY + 1, [("ANY", None)])

    def _one_of_two(self, given: Any) -> _Part:
        return self._either([way if way is not None else [] for way in given[1:]])

    def _kept_whole(self, body: Any, *, may_be_none: bool) -> _Part:
        """One place that takes whatever: within it there is one way only once it is left."""
        self.inner.append(body)
        part = self._one(EVERYTHING)
        return _Part(nullable=may_be_none or body.getwidth()[0] == 0, first=part.first, last=part.last)

    def _either(self, ways: Sequence[Any]) -> _Part:
        parts = [self._sequence(way) for way in ways]
        last: dict[int, bool] = {}
        for part in parts:
            last |= part.last
        first = set().union(*(part.first for part in parts))
        self.divides = self.divides or sum(part.nullable for part in parts) > 1
        return _Part(nullable=any(part.nullable for part in parts), first=first, last=last)

    def _repeated(self, fewest: int, most: Any, body: Any) -> _Part:
        shortest, longest = (1, 1) if isinstance(body, list) else body.getwidth()
        is_endless = most - fewest > _FEW or most > _MANY or (most > 1 and shortest != longest)
        whole = before = _nothing()
        for number in range(max(1, min(fewest, _MANY)) if is_endless else most):
            one = self._sequence(body)
            self.divides = self.divides or (one.nullable and (most > 1 or fewest == 0))
            if number < fewest:
                whole = self._joined(whole, one)
            else:  # one more only after the one before
                self._lead(before, one)
                first = one.first if number == 0 else whole.first
                whole = _Part(nullable=whole.nullable, first=first, last=whole.last | one.last)
            before = one
        if is_endless:
            self._lead(before, before)
        return whole


def _nothing() -> _Part:
    return _Part(nullable=True, first=set(), last={})


_PARTS: Mapping[str, Callable[[Places, Any], _Part]] = {
    "MAX_REPEAT": lambda places, given: places._repeated(*given),
    "MIN_REPEAT": lambda places, given: places._repeated(*given),
    "BRANCH": lambda places, given: places._either(given[1]),
    "GROUPREF_EXISTS": Places._one_of_two,
    "SUBPATTERN": lambda places, given: places._sequence(given[-1]),
    "ATOMIC_GROUP": lambda places, given: places._kept_whole(given, may_be_none=False),
    "POSSESSIVE_REPEAT": lambda places, given: places._kept_whole(given[-1], may_be_none=given[0] == 0),
    "ASSERT": Places._condition,
    "ASSERT_NOT": Places._condition,
    "AT": Places._condition,
    "GROUPREF": Places._said_before,
}


def _taken(kind: str, given: Any) -> frozenset[str]:
    """What one place takes; more than that where it can't be told."""
    if kind == "IN":
        return _of_class(given)
    if kind == "LITERAL":
        return _of_char(chr(given))
    if kind == "NOT_LITERAL":
        return _of_class([("NEGATE", None), ("LITERAL", given)])
    if kind == "RANGE":
        lowest, highest = given
        ascii_ = frozenset().union(*(_of_char(chr(code)) for code in range(lowest, min(highest, 127) + 1)))
        return ascii_ | _REST if highest > 127 else ascii_
    if kind == "CATEGORY":
        return _of_category(str(given))
    return EVERYTHING


def _of_char(char: str) -> frozenset[str]:
    cases = {char, char.lower(), char.upper()}
    return frozenset(case if case in _ASCII else _kind(case) for case in cases)


def _kind(char: str) -> str:
    if char[0].isdecimal():
        return "digit"
    if char[0].isalnum():
        return "letter"
    return "blank" if char[0].isspace() else "none"


def _of_class(items: Sequence[tuple[Any, Any]]) -> frozenset[str]:
    negated = str(items[0][0]) == "NEGATE"
    taken = frozenset().union(*(_taken(str(kind), given) for kind, given in items[int(negated) :]))
    if not negated:
        return taken
    whole_kinds = (_taken("CATEGORY", given) for kind, given in items if str(kind) == "CATEGORY")
    return (_ASCII - taken) | (_REST - frozenset().union(*whole_kinds))


def _of_category(name: str) -> frozenset[str]:
    base = name.removeprefix("CATEGORY_").removeprefix("UNI_").removeprefix("LOC_")
    kind = base.removeprefix("NOT_")
    taken = frozenset(filter(_TOLD[kind], _ASCII)) | _KINDS[kind]
    return taken if base == kind else EVERYTHING - taken
