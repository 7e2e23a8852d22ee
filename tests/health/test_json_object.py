from __future__ import annotations

import math

import pytest

from failsoft.health.json_object import is_count, is_finite, json_object


@pytest.mark.parametrize("text", [b"", b'{"a": 1', b"[1]", b'"a"', b"5", b"null", b"\xff\xfe", b"[" * 200_000, "x"])
def test_what_is_no_object_is_none_whatever_it_is(text: str | bytes) -> None:
    assert json_object(text) is None


def test_an_object_comes_back() -> None:
    assert json_object('{"a": [1, null]}') == {"a": [1, None]}


def test_only_whole_numbers_of_63_bits_are_counts() -> None:
    assert [value for value in (0, 5, 2**63 - 1, -1, 2**63, 2.0, True, "3", None) if is_count(value)] == [
        0,
        5,
        2**63 - 1,
    ]


def test_only_numbers_that_a_float_holds_are_finite() -> None:
    assert [value for value in (0, -1.5, math.nan, math.inf, 10**400, True, "3", None) if is_finite(value)] == [0, -1.5]
