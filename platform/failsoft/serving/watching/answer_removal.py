"""What becomes of old spans and of requests that went wrong in them: texts go first, then the rest, then the counts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from failsoft.health.json_object import is_finite, json_object
from failsoft.health.line_removal import Judge, Removed, remove_lines, remove_whole_files
from failsoft.health.retention import DAY_S, Cut, RetentionPolicy
from failsoft.serving.watching.specimens import Whose

TEXT_FIELDS = frozenset({"text", "instance", "trace_id", *Whose("any", 0).marks()})
"""Of a specimen: what its author wrote, and by what the author, or the request's trace, is found."""


def judge_spans(cut: Cut, *, whole: bool = True, gone: Callable[[str], object] = lambda _text: None) -> Judge:
    """Takes out of each span what the cut says; a line that is torn goes, since nobody reads it.

    Args:
        cut: moments before which texts, specimens and whole spans go, and marks whose specimens go in any case.
        whole: a marked specimen goes altogether; False leaves its shape.
        gone: told each text that goes, so that whoever has copied it can be found.
    """

    def judge(line: bytes) -> bytes | None:
        body = json_object(line)
        at_s = None if body is None else body.get("at_s")
        if body is None or not is_finite(at_s) or at_s < cut.answers_s:
            _tell(body or {}, gone)
            return None
        before, left = body.get("specimens"), list[dict[str, Any]]()
        for one in before if isinstance(before, list) else ():
            kept = _kept(one, at_s, cut, whole=whole) if isinstance(one, dict) else None
            if isinstance(one, dict) and "text" in one and "text" not in (kept or {}):
                gone(str(one["text"]))
            left += [] if kept is None else [kept]
        return (
            line if left == (before or []) else json.dumps(body | {"specimens": left}, separators=(",", ":")).encode()
        )

    return judge


def shorten_answers(
    path: Path, policy: RetentionPolicy, *, now_s: float, before: Callable[[set[str]], object] = lambda _texts: None
) -> Removed:
    """Apply a policy to the history of answers at ``path``: what is too old by a day at most may stay until next time.

    Args:
        path: of the file that is written.
        policy: how long, and how much.
        now_s: wall time.
        before: told the texts that go, while they are still there: once they are gone, nothing tells any more which
            page shows one.

    Raises:
        OSError: the disk refuses.
    """
    if not path.parent.is_dir():
        return Removed()
    removed = Removed()
    if policy.answers_bytes is not None:
        removed += remove_whole_files(
            path, keep_bytes=policy.answers_bytes, before=lambda file: before(_texts_of(file.read_bytes()))
        )
    due = remove_lines(path, judge_spans(policy.cut(now_s - DAY_S)), dry_run=True)
    if due.lines:
        texts = set[str]()
        remove_lines(path, judge_spans(policy.cut(now_s), gone=texts.add), dry_run=True)
        before(texts)
        removed += remove_lines(path, judge_spans(policy.cut(now_s)))
    return removed


def _texts_of(lines: bytes) -> set[str]:
    texts = set[str]()
    for line in lines.split(b"\n"):
        _tell(json_object(line) or {}, texts.add)
    return texts


def _kept(one: dict[str, Any], at_s: float, cut: Cut, *, whole: bool) -> dict[str, Any] | None:
    marked = not cut.marks.isdisjoint({str(one.get("request")), str(one.get("caller"))})
    if at_s < cut.specimens_s or (marked and whole):
        return None
    if at_s < cut.texts_s or marked:
        return {name: value for name, value in one.items() if name not in TEXT_FIELDS}
    return one


def _tell(body: Mapping[str, Any], gone: Callable[[str], object]) -> None:
    specimens = body.get("specimens")
    for one in specimens if isinstance(specimens, list) else ():
        if isinstance(one, dict) and "text" in one:
            gone(str(one["text"]))
