"""Pages of incidents in a home's folder ``reports``: those that show a text which goes, and those that are too old.

They are made anew from what is left, by ``failsoft report``.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from html import escape
from pathlib import Path

from failsoft.health.plain_text import plain

FOLDER = "reports"
_PAGES = re.compile(r".*\.(html|json|jsonl|md|txt|csv|tsv|log|out|err|xml|ya?ml)(-[0-9a-f]{8})?", re.DOTALL)
"""Names of files that people read, and what a kill left of one that was being written: a weight file is no page."""
_HEAD = 8
_FEW = 2000
"""Up to so many forms each is looked for by itself; of more, each place of a page is looked up among them."""
_ALONE = re.compile(rb'(?:^|(?<=[>"\r\n]))[^<>"\r\n]{1,%d}(?=[<"\r\n]|\Z)' % (_HEAD - 1))


class Forms:
    """How texts stand in pages: as they are, as a page shows them, or as JSON writes them.

    One of less than 8 bytes counts only where it stands alone, as in a cell, a string or a line: as part of a sentence
    it is a word like others, and every page has it.

    Args:
        texts: as they were kept.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        forms = {form.encode("utf-8", "replace") for text in texts if text.strip() for form in _forms(text)}
        self._alone = {form for form in forms if len(form) < _HEAD and _ALONE.fullmatch(form)}
        self._forms = forms - self._alone
        self._lengths = defaultdict[bytes, set[int]](set)
        for form in self._forms:
            self._lengths[form[:_HEAD]].add(len(form))
        self._too_short = {form for form in self._forms if len(form) < _HEAD}

    def __bool__(self) -> bool:
        """Whether there is anything to look for."""
        return bool(self._forms or self._alone)

    def are_in(self, page: bytes) -> bool:
        """Whether it holds one of them. A page costs its length, however many they are."""
        if self._alone and not self._alone.isdisjoint(_ALONE.findall(page)):
            return True
        if len(self._forms) <= _FEW:
            return any(form in page for form in self._forms)
        return any(form in page for form in self._too_short) or self._any_at_its_place(page)

    def _any_at_its_place(self, page: bytes) -> bool:
        for at in range(len(page) - _HEAD + 1):
            lengths = self._lengths.get(page[at : at + _HEAD])
            if lengths is not None and any(page[at : at + length] in self._forms for length in lengths):
                return True
        return False


def pages_that_show(folder: Path, texts: Iterable[str], *, beside: Collection[str] = ()) -> list[Path]:
    """Those below a folder that hold one of the texts; ``beside``: names of folders in it that are not looked at."""
    wanted = Forms(texts)
    return [path for path in _pages(folder, beside) if _holds(path, wanted)] if wanted else []


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


def _pages(folder: Path, beside: Collection[str]) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
        if _PAGES.fullmatch(path.name) and path.relative_to(folder).parts[0] not in beside and path.is_file():
            yield path


def _holds(path: Path, wanted: Forms) -> bool:
    with suppress(FileNotFoundError):  # removed since it was listed: apps go on meanwhile
        return wanted.are_in(path.read_bytes())
    return False


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
