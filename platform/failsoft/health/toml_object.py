"""Reads a TOML file that a person wrote: numbers are those that TOML has, and no larger ones."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

_MOST = 2**63


def toml_object(text: str) -> dict[str, Any]:
    """The tables of a file.

    Raises:
        ValueError: it is no TOML, or holds a whole number of more than 64 bits, which Python takes and no setting can
            be reckoned with; the sentence names key and value.
        RecursionError: it is nested beyond all reason.
    """
    body = tomllib.loads(text)
    refuse_huge(body)
    return body


def refuse_huge(value: object) -> None:
    """Raise ValueError where a whole number in there has more than 64 bits, as TOML has it."""
    for name, number in _whole_numbers("", value):
        if not -_MOST <= number < _MOST:
            raise ValueError(
                f"{name} is {_shown(number)}; use a number below 2**63, or inf where a setting may be without bound"
            )


def _whole_numbers(name: str, value: object) -> Iterator[tuple[str, int]]:
    if isinstance(value, int):
        yield name, value
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from _whole_numbers(f"{name}.{key}" if name else str(key), one)
    elif isinstance(value, list):
        for place, one in enumerate(value):
            yield from _whole_numbers(f"{name}[{place}]", one)


def _shown(number: int) -> str:
    """Python refuses to write one of some thousand digits."""
    return str(number) if abs(number) < 10**30 else f"a number of {number.bit_length()} bits"
