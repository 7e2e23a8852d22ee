"""Reads one JSON object that somebody else may have written, or torn."""

from __future__ import annotations

import json
import math
from typing import Any, TypeGuard


def json_value(text: str | bytes) -> Any:
    """The value, as ``json.loads`` reads it.

    Raises:
        ValueError: it is no JSON, not text, or nested beyond all reason: a hundred kilobytes of ``[`` must not end in
            an error that no reader of a file expects.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deep for JSON of ours") from error


def json_object(text: str | bytes) -> dict[str, Any] | None:
    """The object; None for what is none: torn, another kind of value, not text, or nested beyond all reason."""
    try:
        value = json_value(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def is_count(value: object) -> TypeGuard[int]:
    """Whether this is a whole number from 0 that fits into 63 bits; True and 3.0 are none."""
    return type(value) is int and 0 <= value < 2**63


def is_finite(value: object) -> TypeGuard[float]:
    """Whether this is a finite number; a whole one that no float can hold is none."""
    if type(value) not in {int, float}:
        return False
    try:
        return math.isfinite(value)  # type: ignore[arg-type]  # the type is known from the line above
    except OverflowError:
        return False
