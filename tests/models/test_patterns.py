"""Patterns of a rules file answer in the gateway's own process, whoever asks: none may take for ever."""

from __future__ import annotations

import re

import pytest

from failsoft.health.clock import SystemClock
from failsoft.models.patterns import may_take_for_ever

HARMLESS = (
    r"\bput (?:it|that) on\b",
    r"(\d) stars",
    r"(\d{1,2}) (?:hours?|minutes?)",
    r"\w+\s+\w+",
    r"(?:very |so )+good",
    r"(?:[0-9]{3} )+left",
    r"(?:again|more)*",
    r"(?:\d{3}\.){3}\d{3}",
    r"(?i:who|what) is (.+)",
    r"(?=.*please)play",
    r"(?>\w+\s*)+x",
    r"(?:\w++ )+x",
    r"(a)?(?(1)b|c+)",
)


@pytest.mark.parametrize("pattern", HARMLESS)
def test_harmless_patterns_are_taken(pattern: str) -> None:
    assert not may_take_for_ever(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        r"(a+)+b",
        r"((\w+)\s*)+x",
        r"(?:(?:a)+)+$",
        r"(?:(a|b)*)*x",
        r"(a|aa)+$",
        r"(?:a|ab|b)+x",
        r"(?:\w|a\d)+x",
        r"(?:a?a?)+x",
        r"(?:x(?:a*)){20}y",
        r"(?=(a+)+b)x",
        r"(a+)?(?(1)(b+)+|c)x",
        r"(b)(?:\1|b)+x",
        "(" * 600 + "a" + ")" * 600 + "*",
    ],
)
def test_patterns_that_may_take_for_ever_are_found(pattern: str) -> None:
    assert may_take_for_ever(pattern)


def test_what_is_taken_answers_a_text_that_is_made_to_take_long() -> None:
    began_s = SystemClock().monotonic_s()
    for pattern in HARMLESS:
        for text in ("a" * 2000, "a b " * 500, "1" * 2000, "very so " * 250):
            re.search(pattern, text)
    assert SystemClock().monotonic_s() - began_s < 10.0
