"""Which patterns can take for ever: Python's matcher tries every way to divide a text, and holds the whole process.

One repeat within another, alternatives that begin alike within a repeat: each more character of a text can double the
ways. What is told here is cautious: it finds some that are harmless, too, but none that doubles passes.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

_PARSER: Any = importlib.import_module("re._parser")
_GIVES_NOTHING_BACK = {"ATOMIC_GROUP", "POSSESSIVE_REPEAT", "ASSERT", "ASSERT_NOT"}


def may_take_for_ever(pattern: str) -> bool:
    """Whether it repeats what can match one text in several ways.

    Raises:
        re.error: it is no pattern.
    """
    try:
        return _divides(_PARSER.parse(pattern), repeated=False)
    except RecursionError:
        return True


def _divides(nodes: Iterable[tuple[Any, Any]], *, repeated: bool) -> bool:
    return any(_node_divides(str(kind), given, repeated=repeated) for kind, given in nodes)


def _node_divides(kind: str, given: Any, *, repeated: bool) -> bool:
    if kind in ("MAX_REPEAT", "MIN_REPEAT"):
        fewest, most, inside = given
        return (repeated and fewest != most) or _divides(inside, repeated=repeated or most > 1)
    if kind == "BRANCH":
        ways = given[1]
        return (repeated and _begin_alike(ways)) or any(_divides(way, repeated=repeated) for way in ways)
    if kind == "GROUPREF_EXISTS":
        return any(_divides(way, repeated=repeated) for way in given[1:] if way is not None)
    if kind == "SUBPATTERN":
        return _divides(given[-1], repeated=repeated)
    if kind == "ATOMIC_GROUP":
        return _divides(given, repeated=False)
    return kind in _GIVES_NOTHING_BACK and _divides(given[-1], repeated=False)


def _begin_alike(ways: Iterable[Any]) -> bool:
    """Alternatives can be told apart where each begins with a letter of its own, whatever its case."""
    first = [str(chr(way[0][1])).casefold() if len(way) and str(way[0][0]) == "LITERAL" else None for way in ways]
    return None in first or len(set(first)) < len(first)
