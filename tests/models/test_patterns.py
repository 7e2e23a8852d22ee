"""Patterns of a rules file or a fallback answer in the gateway's own process, whoever asks: none may take for ever."""

from __future__ import annotations

import re

import pytest

from failsoft.health.clock import SystemClock
from failsoft.models.patterns import may_take_for_ever

CHARS = 500
HARMLESS = (
    r"\bput (?:it|that) on\b",
    r"(\d) stars",
    r"(\d{1,2}) (?:hours?|minutes?)",
    r"\w+\s+\w+",
    r"\w+\s+\w+\s+\w+x",
    r"(?:very |so )+good",
    r"(?:[0-9]{3} )+left",
    r"(?:again|more)*",
    r"(?:\d{3}\.){3}\d{3}",
    r"(?:\d{1,3}\.){3}\d{1,3}$",
    r"(?i:who|what) is (.+)",
    r"play (.+) by (.+)",
    r"play (.+) by (.+) on (.+)",
    r"set (?:an? )?alarm (?:for|at) (\d{1,2})(?::(\d{2}))?\s*(?:am|pm)?$",
    r"^.*please.*$",
    r"(?=.*please)play",
    r"(?>\w+\s*)+x",
    r"(?:\w++ )+x",
    r"(a)?(?(1)b|c+)",
    r"(?u)\b\w+(?:[-'’]\w+)*\b",
    r"(?:x(?:a*)){20}y",
    r"colou?rs? (?:of )?(?:the )?(?:sky|sea)",
)


@pytest.mark.parametrize("pattern", HARMLESS)
def test_harmless_patterns_are_taken(pattern: str) -> None:
    assert not may_take_for_ever(pattern, chars=CHARS)


@pytest.mark.parametrize(
    "pattern",
    [
        r"(a+)+b",
        r"((\w+)\s*)+x",
        r"(?:(?:a)+)+$",
        r"(?:(a|b)*)*x",
        r"(a|aa)+$",
        r"(?:a|a)+x",
        r"(?:a|ab|b)+x",
        r"(?:\w|a\d)+x",
        r"(?:a?a?)+x",
        r"(?:x?(?:a*)){20}y",
        r"(?:a{1,9}){9}b",
        r"(?=(a+)+b)x",
        r"(a+)?(?(1)(b+)+|c)x",
        r"(b)(?:\1|b)+x",
        r"(?i:[a-z]+|[A-Z])+1",
        r"(?:é1|[à-ü]\d)+x",
        "(" * 600 + "a" + ")" * 600 + "*",
    ],
)
def test_patterns_that_double_are_found(pattern: str) -> None:
    assert may_take_for_ever(pattern, chars=100)


@pytest.mark.parametrize(
    "pattern",
    [
        r".*a.*b",
        r"\w+\w+x",
        r"\w*\s*\w*x",
        r"(.+)(?: by )?(.+)x",
        r"a.*a.*b",
        r"\w*(?=.*x)y",
        r"\w*(?>.*a.*b)c",
        r"(?m)^.*a.*b.*c$",
        r"a{0,50}a{0,50}a{0,50}b",
        "a?" * 30 + "b",
    ],
)
def test_patterns_whose_time_grows_with_a_power_of_the_length_are_found(pattern: str) -> None:
    assert may_take_for_ever(pattern, chars=CHARS)


def test_the_longer_the_texts_the_less_is_taken() -> None:
    assert not may_take_for_ever(r"\w*x", chars=1000)
    assert may_take_for_ever(r"\w*x", chars=20_000)
    assert not may_take_for_ever(r"(?u)\b\w\w+\b", chars=20_000)


def test_what_is_taken_answers_a_text_that_is_made_to_take_long() -> None:
    began_s = SystemClock().monotonic_s()
    for pattern in HARMLESS:
        for text in ("a" * CHARS, "a b " * 125, "1" * CHARS, "very so " * 62, "play a by " * 50, " please " * 62):
            re.search(pattern, text)
    assert SystemClock().monotonic_s() - began_s < 10.0


def test_a_long_pattern_is_looked_at_in_no_time() -> None:
    began_s = SystemClock().monotonic_s()
    may_take_for_ever("|".join(f"(?:word{number} \\w+)" for number in range(45)), chars=CHARS)
    may_take_for_ever("(?:" + "|".join(f"w{number}" for number in range(90)) + ")+x", chars=CHARS)
    may_take_for_ever(r"(?:\w{2} ){9}" * 9, chars=CHARS)
    assert SystemClock().monotonic_s() - began_s < 10.0
