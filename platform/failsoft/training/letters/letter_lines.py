"""Reads one line of a file of dead letters. What is not whole, or not of the promised types, is no letter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from failsoft.health.json_object import is_count, is_finite, json_object
from failsoft.training.letters.letter import DeadLetter

RESUMED_AT = "resumed_at"
"""Key of a line that is no letter: the run went on from this position, so later positions are met anew."""
_EARLIEST_S, _LATEST_S = -6.2e10, 2.5e11
"""The years 5 and 9892: a calendar begins with 1 and ends in 9999."""

Check = Callable[[Any], bool]


def is_text(value: object) -> bool:
    """Whether it is one."""
    return isinstance(value, str)


def is_time(value: object) -> bool:
    """Whether a calendar has this wall time: what no date can be made of would break whoever shows it."""
    return is_finite(value) and _EARLIEST_S < value < _LATEST_S


def _none_or(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _names(check: Check) -> Check:
    return lambda value: isinstance(value, dict) and all(map(check, value.values()))


_CHECKS: Mapping[str, Check] = {
    "position": is_count,
    "step": is_count,
    "rank": is_count,
    "reason": lambda value: is_text(value) and bool(value),
    "sample_ids": lambda value: isinstance(value, list) and all(map(is_count, value)),
    "loss": _none_or(is_finite),
    "grad_norm": _none_or(is_finite),
    "bad_tensor": _none_or(is_text),
    "at_s": is_time,
    "world": lambda value: is_count(value) and value > 0,
    "sample_count": _none_or(is_count),
    "mean_loss": _none_or(is_finite),
    "why": is_text,
    "spike_limit": _none_or(is_finite),
    "sources": _names(is_count),
    "model_digest": _none_or(is_text),
    "generators": _none_or(_names(is_text)),
    "generators_digest": _none_or(is_text),
    "payload": _none_or(is_text),
    "threads": _none_or(lambda value: is_count(value) and value > 0),
    "shares": _none_or(lambda value: isinstance(value, list) and all(is_count(share) and share for share in value)),
    "undone_at": _none_or(is_count),
}
_NEEDED = frozenset({"position", "step", "rank", "reason", "sample_ids"})


def parse_line(line: bytes) -> DeadLetter | dict[str, Any] | None:
    """A letter, a mark that the run went on from a position, or None for what is neither.

    Fields that this version does not know are passed over.
    """
    record = json_object(line)
    if record is None:
        return None
    if RESUMED_AT in record:
        position, at_s = record[RESUMED_AT], record.get("at_s")
        return {RESUMED_AT: position, "at_s": float(at_s)} if is_count(position) and is_finite(at_s) else None
    known = {name: value for name, value in record.items() if name in _CHECKS}
    if not known.keys() >= _NEEDED or not all(_CHECKS[name](value) for name, value in known.items()):
        return None
    if known.get("shares") is not None:
        known["shares"] = tuple(known["shares"])
    return DeadLetter(**(known | {"sample_ids": tuple(known["sample_ids"])}))
