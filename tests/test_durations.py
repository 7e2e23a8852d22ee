"""Durations as people write them."""

from __future__ import annotations

import pytest

from failsoft.durations import parse_duration_s
from failsoft.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90.0), ("15m", 900.0), ("2h", 7200.0), (" 1.5H ", 5400.0), ("1d", 86400.0)]
)
def test_a_number_and_a_unit_are_seconds(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "2", "h", "-5m", "0s", "2 hours", "1e3s", "nan", "9" * 400 + "d"])
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match="15m"):
        parse_duration_s(text)
