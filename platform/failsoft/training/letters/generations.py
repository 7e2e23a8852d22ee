"""Files of lines that turn over when they are full: two generations, of which the older one goes first.

Several processes may write one file (a worker that was given up for dead and the one in its place), others read it.
Whoever turns it over waits for those who are writing, and looks again whether it is still this file that is full: else
two that do so at once would put the few new lines in the place of all the old ones.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import BinaryIO

from failsoft.health.ledger_files import append_line

_OLD = ".old.jsonl"


def append_turning_over(path: Path, line: bytes, *, max_bytes: int) -> None:
    """Append a line, which ends with a newline, to a file that grows to ``max_bytes`` at most.

    Raises:
        OSError: the disk refused; what it took of the line is torn.
    """
    _turn_over_if_full(path, max_bytes - len(line))
    append_line(path, line)


def lines_of(path: Path) -> Iterator[bytes]:
    """The lines of both generations, oldest first, each once though the file is turned over meanwhile.

    Raises:
        OSError: a file that is there can't be read.
    """
    with ExitStack() as open_files:
        newer = _opened(path, open_files)  # first: what is turned over after that is met as the older one
        older = _opened(path.with_suffix(_OLD), open_files)
        if older is not None and not (newer is not None and _is_same(older, newer)):
            yield from older
        if newer is not None:
            yield from newer


def newer_of(path: Path) -> Path:
    """The newer generation's path, given that of any of the two."""
    return path.with_name(f"{path.name.split('.')[0]}.jsonl")


def _turn_over_if_full(path: Path, most_bytes: int) -> None:
    with suppress(FileNotFoundError), path.open("rb") as file:
        if os.fstat(file.fileno()).st_size <= most_bytes:
            return
        with suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        if os.path.samestat(os.fstat(file.fileno()), path.stat()):
            path.replace(path.with_suffix(_OLD))


def _opened(path: Path, open_files: ExitStack) -> BinaryIO | None:
    try:
        return open_files.enter_context(path.open("rb"))
    except FileNotFoundError:
        return None


def _is_same(one: BinaryIO, other: BinaryIO) -> bool:
    return os.path.samestat(os.fstat(one.fileno()), os.fstat(other.fileno()))
