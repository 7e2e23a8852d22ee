"""What becomes of old events: a ledger's files are bounded in age and size, and a person's own can be taken out."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from failsoft.health.json_object import is_finite, json_object
from failsoft.health.ledger_files import archives
from failsoft.health.line_removal import Judge, Removed, remove_lines, remove_whole_files
from failsoft.health.retention import DAY_S, RetentionPolicy

_SHORT = 8
"""Digits of a caller's number in sentences, see :func:`failsoft.health.callers.caller_in_words`."""


def judge_events(before_s: float, marks: Iterable[str] = ()) -> Judge:
    """Takes out events from before a wall time, those that name a mark, and lines that are torn: nobody reads them.

    Args:
        before_s: wall time; ``-inf``: none is too old.
        marks: of callers and requests, 16 hexadecimal digits each; sentences have the first 8 of a caller's.
    """
    words = "|".join(f"{mark[:_SHORT]}(?:{mark[_SHORT:]})?" for mark in sorted(marks))
    named = re.compile(rf"(?<![0-9a-f])(?:{words})(?![0-9a-f])".encode()) if words else None

    def judge(line: bytes) -> bytes | None:
        body = json_object(line)
        at_s = None if body is None else body.get("at_s")
        if not is_finite(at_s) or at_s < before_s:
            return None
        return None if named is not None and named.search(line) else line

    return judge


def shorten(path: Path, policy: RetentionPolicy, *, now_s: float, dry_run: bool = False) -> Removed:
    """Apply a policy to the ledger at ``path``; what is too old by less than a day may stay until the next time.

    So that a file is put in another's place once a day at most. Files of younger events are not read. An event from
    ahead of ``now_s``, by a clock that was wrong, stays until its day or the size's bound, and tells of no other's age.

    Raises:
        OSError: the disk refuses.
    """
    removed, before_s = bound(path, policy, dry_run=dry_run), policy.cut(now_s).ledger_s
    if not math.isinf(before_s) and _oldest_s([*archives(path), path], now_s) < before_s - DAY_S:
        young = partial(_is_young, before_s=before_s, now_s=now_s)
        removed += remove_lines(path, judge_events(before_s), dry_run=dry_run, enough=young)
    return removed


def bound(path: Path, policy: RetentionPolicy, *, dry_run: bool = False) -> Removed:
    """Hold the ledger at ``path`` to the policy's size, by whole files: quick enough for whoever has filled one.

    Raises:
        OSError: the disk refuses.
    """
    if policy.ledger_bytes is None or not archives(path):
        return Removed()
    return remove_whole_files(path, keep_bytes=policy.ledger_bytes, dry_run=dry_run)


def _is_young(file: Path, *, before_s: float, now_s: float) -> bool:
    return before_s <= _oldest_s([file], now_s) < math.inf


def _oldest_s(files: Iterable[Path], now_s: float) -> float:
    """Wall time of the first event that is left, and not from ahead; infinite without any."""
    for there in files:
        try:
            with there.open("rb") as lines:
                for line in lines:
                    body = json_object(line) if line.strip() else None
                    at_s = None if body is None else body.get("at_s")
                    if is_finite(at_s) and at_s <= now_s:
                        return float(at_s)
        except FileNotFoundError:
            continue
    return math.inf
