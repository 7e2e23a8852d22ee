"""The files of a ledger: the one that is written, and those that were full, numbered in order beside it.

``ledger.jsonl`` is renamed to ``ledger-000001.jsonl`` when it is full, and so on; nothing is ever removed here. Writers
open the file for each event, so one that comes just then writes into the one or the other, and no line is lost. Which
of two writers renames is settled by a lock on a file beside it; a reader needs none.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

FULL_BYTES = 16 * 1024 * 1024
"""At some 300 bytes an event, 50,000 events: read in half a second, and a day of a busy app."""
_DIGITS = 6
_LOOKED_AT = 2


def archives(path: Path) -> list[Path]:
    """The full files of the ledger at ``path``, oldest first."""
    form = re.compile(re.escape(path.stem) + rf"-\d{{{_DIGITS},}}" + re.escape(path.suffix))
    if not path.parent.is_dir():
        return []
    return sorted((there for there in path.parent.iterdir() if form.fullmatch(there.name)), key=_number)


def put_away(path: Path, *, full_bytes: int = FULL_BYTES) -> Path | None:
    """Give the ledger at ``path`` the next number if it is full, so that the next event begins a new file.

    Returns:
        Where it lies now; None when it is not full, or another process has just done it.

    Raises:
        OSError: the disk refuses; the ledger goes on as it is.
    """
    with path.with_name(f".{path.name}.lock").open("ab") as lock:
        os.fchmod(lock.fileno(), 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)  # given back when the file is closed, or its process dies
        if not path.exists() or path.stat().st_size < full_bytes:
            return None
        before = archives(path)
        number = _number(before[-1]) + 1 if before else 1
        return path.rename(path.with_name(f"{path.stem}-{number:0{_DIGITS}}{path.suffix}"))


def all_lines(path: Path) -> Iterator[bytes]:
    """Every line that is not blank, oldest first, each once even while the file is put away by somebody else."""
    now = _opened(path)
    try:
        files = archives(path)
        inside = now is not None and any(_same(now, there) for there in files)
        for there in files:
            with there.open("rb") as lines:
                yield from (line for line in lines if line.strip())
        if now is not None and not inside:
            yield from (line for line in now if line.strip())
    finally:
        if now is not None:
            now.close()


class Tail:
    """The lines that were added since it last looked, at first all of them; follows the ledger into its next file.

    The file before is still looked at: a writer that had opened it may have been slow. What one writes there that was
    slow for the length of a whole file is in the ledger, and not seen here.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._parts: list[_Part] = []

    def new_lines(self) -> list[bytes]:
        """Whole lines only: one that is still being written comes with a later look."""
        lines = self._rest()
        while self._move_on():
            lines += self._rest()
        while len(self._parts) > _LOOKED_AT:
            self._parts.pop(0).file.close()
        return lines

    def _rest(self) -> list[bytes]:
        return [line for part in self._parts for line in part.rest()]

    def close(self) -> None:
        """Give the files back."""
        for part in self._parts:
            part.file.close()
        self._parts.clear()

    def _move_on(self) -> bool:
        """To the file that follows the one at hand; False when there is none yet."""
        here = self._parts[-1].file if self._parts else None
        if here is not None and _same(here, self._path):
            return False
        files = [*archives(self._path), self._path]
        after = [number + 1 for number, there in enumerate(files) if here is not None and _same(here, there)]
        file = _opened(files[after[0]] if after and after[0] < len(files) else files[0] if here is None else self._path)
        if file is None:
            return False
        self._parts.append(_Part(file))
        return True


class _Part:
    """A file that is read as it grows."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self._begun = b""

    def rest(self) -> list[bytes]:
        *whole, self._begun = (self._begun + self.file.read()).split(b"\n")
        return [line for line in whole if line.strip()]


def _opened(path: Path) -> BinaryIO | None:
    try:
        return path.open("rb")
    except FileNotFoundError:
        return None


def _same(opened: BinaryIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(opened.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _number(path: Path) -> int:
    return int(path.stem.rsplit("-", 1)[1])
