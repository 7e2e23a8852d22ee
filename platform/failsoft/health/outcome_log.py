"""Reads a log of answers for a simulation: JSON lines or CSV, one answer a line.

A line names an ``outcome`` (good, weak, error, late, shed, bad_input), or the model's ``confidence`` (of an answer that
a net replaced: ``refused_confidence``), or both; and, where it is known, a ``time`` in seconds or ISO 8601. Answers of
a gateway, written down as they came, are such lines. What says nothing about the model is counted and left out.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from failsoft.errors import ConfigError
from failsoft.health.json_object import json_object
from failsoft.health.monitor import BAD, SILENT
from failsoft.health.window import Outcome

_FROM_MODELS = frozenset({"primary", "canary"})


@dataclass(frozen=True, kw_only=True)
class OutcomeLog:
    """The answers of one log, in its order."""

    bad: list[bool]
    """One for each answer that says something about the model."""
    span_s: float | None
    """From the first to the last answer; None: the log has no times."""
    left_out: Mapping[str, int]
    """Lines that were not counted, by the reason."""


def read_log(path: Path, *, low_confidence: float) -> OutcomeLog:
    """Read a log; ``low_confidence``: below it, or with what is no share, an answer without an outcome is weak.

    Raises:
        ConfigError: there is no such file, it is no CSV, no line of it says anything about a model, or the limit is no
            share.
    """
    if not 0.0 <= low_confidence <= 1.0:
        raise ConfigError(f"low_confidence is {low_confidence}; a share from 0 to 1, 0.65 suits")
    try:
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as lines:  # spreadsheets put a mark first
            found = _gather(_rows(path, lines), low_confidence)
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror}; give a file of JSON lines, or a CSV") from error
    except csv.Error as error:
        raise ConfigError(f"{path} can't be read as CSV: {error}; give one answer a line, without its text") from error
    if not found.bad:
        raise ConfigError(
            f"{path} has no line that says how an answer went ({dict(found.left_out)}); a line needs an 'outcome' or a "
            "'confidence'"
        )
    return found


def _rows(path: Path, lines: Iterable[str]) -> Iterator[Mapping[str, Any] | None]:
    if path.suffix.lower() == ".csv":
        yield from csv.DictReader(lines)
    else:
        yield from (json_object(line) for line in lines if line.strip())


def _gather(rows: Iterable[Mapping[str, Any] | None], low_confidence: float) -> OutcomeLog:
    bad: list[bool] = []
    left_out: Counter[str] = Counter()
    times: list[float] = []
    for row in rows:
        if row is None:
            left_out["not a JSON object"] += 1
            continue
        outcome = _outcome_of(row, low_confidence)
        if outcome is None or outcome in SILENT:
            left_out[str(outcome or "says nothing about the model")] += 1
            continue
        bad.append(outcome in BAD)
        at_s = _time_of(row)
        if at_s is not None:
            times.append(at_s)
    span_s = max(times) - min(times) if len(times) == len(bad) and times else None
    return OutcomeLog(bad=bad, span_s=span_s if span_s else None, left_out=dict(left_out))


def _outcome_of(row: Mapping[str, Any], low_confidence: float) -> Outcome | None:
    said = row.get("outcome")
    if isinstance(said, str) and said in set(Outcome):
        return Outcome(said)
    refused, own = row.get("refused_confidence"), row.get("confidence")
    if refused not in (None, ""):
        own = refused
    elif row.get("source", "primary") not in _FROM_MODELS:
        return None
    if own is None or own == "":
        return None
    return Outcome.GOOD if low_confidence <= _number(own) <= 1.0 else Outcome.WEAK  # so are NaN, infinity and 95


def _time_of(row: Mapping[str, Any]) -> float | None:
    said = row.get("time")
    number = _number(said)
    if math.isfinite(number):
        return number
    try:
        return datetime.fromisoformat(str(said)).timestamp()
    except (ValueError, OverflowError, OSError):  # the others: a moment that this machine's clock can't have
        return None


def _number(said: object) -> float:
    try:
        return float(str(said))
    except ValueError:
        return math.nan
