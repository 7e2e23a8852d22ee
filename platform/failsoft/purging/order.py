"""What somebody asks to have removed. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from failsoft.errors import ConfigError
from failsoft.health.callers import caller_of
from failsoft.health.retention import Cut
from failsoft.serving.watching.specimens import caller_mark, request_mark


class What(StrEnum):
    """Kinds of what is kept; each of the first three holds the ones before it."""

    TEXTS = "texts"
    """Texts of requests that went wrong, where keep_texts was on, with the pages that show them."""
    SPECIMENS = "specimens"
    """Such requests altogether: shape, reason, marks of their authors."""
    ANSWERS = "answers"
    """Also the counts of who answered."""
    LEDGER = "ledger"
    """Events of both sides."""
    LETTERS = "letters"
    """Dead letters of batches and samples, with the tensors kept beside them."""
    STACKS = "stacks"
    """Stacks of workers that hung."""
    REPORTS = "reports"
    """Pages and pictures of incidents."""
    ALL = "all"
    """All of these."""


_OF_A_PERSON = frozenset({What.TEXTS, What.SPECIMENS, What.LEDGER, What.ALL})
_ONE_BY_ONE = tuple(kind for kind in What if kind is not What.ALL)


@dataclass(frozen=True, kw_only=True)
class Order:
    """Either what is older than a moment, or what known requests and callers left, at any age."""

    what: frozenset[What]
    """Never :attr:`What.ALL`: that is all the others."""
    cut: Cut

    @property
    def of_a_person(self) -> bool:
        """Whether it is about certain requests or callers."""
        return bool(self.cut.marks)

    @property
    def keeps_shapes(self) -> bool:
        """Whether of a person's request its shape may stay."""
        return What.SPECIMENS not in self.what


def older_than(what: Iterable[What], before_s: float) -> Order:
    """The order to remove all of these kinds from before a wall time."""
    kinds = _kinds(what)
    cut = Cut(
        texts_s=_moment(before_s, kinds, What.TEXTS, What.SPECIMENS, What.ANSWERS),
        specimens_s=_moment(before_s, kinds, What.SPECIMENS, What.ANSWERS),
        answers_s=_moment(before_s, kinds, What.ANSWERS),
        ledger_s=_moment(before_s, kinds, What.LEDGER),
        letters_s=_moment(before_s, kinds, What.LETTERS),
        stacks_s=_moment(before_s, kinds, What.STACKS),
        reports_s=_moment(before_s, kinds, What.REPORTS),
    )
    return Order(what=kinds, cut=cut)


def of_persons(what: Iterable[What], *, request_ids: Iterable[str], callers: Iterable[str]) -> Order:
    """The order to remove what these requests and callers left.

    Args:
        what: kinds.
        request_ids: as they came back in answers.
        callers: keys, as in the header ``X-Caller-Id``.

    Raises:
        ConfigError: nothing of these kinds is kept by request or caller, or no request and no caller is named.
    """
    asked = frozenset(what)
    odd = sorted(asked - _OF_A_PERSON)
    if odd:
        raise ConfigError(
            f"{odd[0]} are not kept by request or caller, so nobody's can be told from the others'; remove them by "
            f"age: failsoft purge --what {odd[0]} --older-than 30d"
        )
    keys = {form for key in callers for form in (key, _as_a_header_brings(key))}
    marks = frozenset({*map(request_mark, request_ids), *(caller_mark(caller_of(key)) for key in keys)})
    if not marks:
        raise ConfigError("no request and no caller is named; give --request-id or --caller, or --older-than")
    return Order(what=_kinds(asked) & _OF_A_PERSON, cut=Cut(marks=marks))


def past_its_time(cut: Cut, what: Iterable[What]) -> Order:
    """The order to remove what a home's settings say is too old, of these kinds."""
    kinds = _kinds(what)
    others: dict[str, Any] = {f"{kind}_s": -math.inf for kind in frozenset(_ONE_BY_ONE) - kinds}
    return Order(what=kinds, cut=replace(cut, **others))


def _as_a_header_brings(key: str) -> str:
    """A name like Bjørn comes as UTF-8 over the wire, and is read there as HTTP has it: a sign for each byte."""
    return key.encode("utf-8", "surrogatepass").decode("latin-1")


def _kinds(what: Iterable[What]) -> frozenset[What]:
    asked = frozenset(what)
    return frozenset(_ONE_BY_ONE) if What.ALL in asked or not asked else asked


def _moment(before_s: float, kinds: frozenset[What], *those: What) -> float:
    return before_s if not kinds.isdisjoint(those) else -math.inf
