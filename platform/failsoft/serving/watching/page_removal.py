"""Pages of incidents in a home's folder ``reports``: those that show a text which goes, and those that are too old.

They are made anew from what is left, by ``failsoft report``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from html import escape
from pathlib import Path

from failsoft.health.plain_text import plain

FOLDER = "reports"
_PAGES = frozenset({".html", ".json", ".jsonl", ".md", ".txt"})


def pages_that_show(folder: Path, texts: Iterable[str]) -> list[Path]:
    """Those below a folder that hold one of the texts: as it is, as a page shows it, or as JSON writes it."""
    wanted = {form.encode("utf-8", "replace") for text in texts if text.strip() for form in _forms(text)}
    if not wanted or not folder.is_dir():
        return []
    pages = (path for path in sorted(folder.rglob("*")) if path.suffix in _PAGES and path.is_file())
    return [path for path in pages if _holds(path.read_bytes(), wanted)]


def pages_before(folder: Path, before_s: float) -> list[Path]:
    """Files below a folder that were last written before a wall time."""
    if not folder.is_dir():
        return []
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and path.stat().st_mtime < before_s]


def remove_pages(pages: Iterable[Path]) -> int:
    """Remove them; returns how many were still there."""
    count = 0
    for path in pages:
        count += path.exists()
        path.unlink(missing_ok=True)
    return count


def _holds(page: bytes, wanted: Iterable[bytes]) -> bool:
    return any(text in page for text in wanted)


def _forms(text: str) -> set[str]:
    shown = plain(text)
    return {
        text,
        shown,
        escape(shown),
        escape(text),
        json.dumps(text)[1:-1],
        json.dumps(text, ensure_ascii=False)[1:-1],
    }
