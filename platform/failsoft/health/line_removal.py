"""Takes lines out of the files of a ledger while others write and follow it.

Another file of the same length is put in a file's place, blank where a line was, so that whoever has read up to some
byte goes on there. It is written aside and renamed: a kill in the midst leaves the old file or the new one, whole. A
writer holds a shared lock for the length of its one ``write``, and looks whether the path still leads to its file; so
no line is lost that comes just then. What a disk once held is not written over: see the limits in the docs.
"""

from __future__ import annotations

import fcntl
import glob
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from failsoft.health.ledger_files import archives, only_one

_ASIDE = ".aside"
Judge = Callable[[bytes], bytes | None]
"""Given a line without its newline: the same one stays; another, no longer one takes its place; None: it goes."""


@dataclass(frozen=True, kw_only=True)
class Removed:
    """What went, or would go."""

    lines: int = 0
    """Taken out, or replaced by what was left of them."""
    files: int = 0
    """Removed whole."""

    def __add__(self, other: Removed) -> Removed:
        """Both together."""
        return Removed(lines=self.lines + other.lines, files=self.files + other.files)


def remove_lines(
    path: Path, judge: Judge, *, dry_run: bool = False, enough: Callable[[Path], bool] = lambda _file: False
) -> Removed:
    """Have every line of the ledger at ``path`` judged, oldest file first; ``dry_run`` only counts.

    ``enough`` is asked about each file of which everything stays: whether those after it can be left unread.

    A full file of which nothing is left is removed, but for the newest: numbers go on from it.

    Raises:
        OSError: the disk refuses; the files before are done, the others as they were.
    """
    if not path.parent.is_dir():
        return Removed()
    removed = Removed()
    with only_one(path):
        _remove_asides(path)
        files = [*archives(path), path]
        for there in files:
            may_go = there not in files[-2:]  # the one that is written, and the newest full one
            found = _rewritten(there, judge, may_go=may_go, dry_run=dry_run)
            removed += found
            if not found.lines and there.exists() and enough(there):
                break
    return removed


def remove_whole_files(
    path: Path, *, keep_bytes: int, dry_run: bool = False, before: Callable[[Path], object] = lambda _file: None
) -> Removed:
    """Remove the oldest full files until all of them together take no more; never the newest of them.

    ``before`` is told each that will go, or would, while it is still there.
    """
    with only_one(path):
        _remove_asides(path)
        there = archives(path)
        sizes = {file: file.stat().st_size for file in there}
        taken, going = sum(sizes.values()), list[Path]()
        for file in there[:-1]:
            if taken > keep_bytes:
                going.append(file)
                taken -= sizes[file]
        for file in going:
            before(file)
            if not dry_run:
                file.unlink(missing_ok=True)
    return Removed(files=len(going))


def _aside(path: Path) -> Path:
    return path.with_name(f".{path.name}{_ASIDE}")


def _remove_asides(path: Path) -> None:
    """Left by a kill in mid-write, of a file that may have gone since; they hold lines that may have to go now."""
    stem, suffix = glob.escape(path.stem), glob.escape(path.suffix)
    for aside in (_aside(path), *path.parent.glob(f".{stem}-[0-9]*{suffix}{_ASIDE}")):
        aside.unlink(missing_ok=True)


def _rewritten(path: Path, judge: Judge, *, may_go: bool, dry_run: bool) -> Removed:
    with suppress(FileNotFoundError), path.open("rb") as file:
        whole, newline, begun = file.read().rpartition(b"\n")
        left, lines = _left(whole + newline, judge)
        lines += _left(begun, judge)[1]
        gone = may_go and not begun and not left.strip()
        if dry_run or not (lines or gone):
            return Removed(lines=lines, files=int(gone))
        if gone:
            path.unlink()
            return Removed(lines=lines, files=1)
        _put_in_place(path, left, file, lambda rest: _last(begun + rest, judge))
        return Removed(lines=lines)
    return Removed()


def _put_in_place(path: Path, left: bytes, file: BinaryIO, last: Callable[[bytes], bytes]) -> None:
    """Write it aside, let ``last`` say what becomes of what writers have added meanwhile, and rename."""
    aside = _aside(path)
    with open(os.open(aside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as out:
        _belongs_as(os.fstat(file.fileno()), out.fileno())
        out.write(left)
        out.flush()
        os.fsync(out.fileno())  # the long part, while writers go on
        with suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        out.write(last(file.read()))
        out.flush()
        os.fsync(out.fileno())
        aside.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _belongs_as(before: os.stat_result, handle: int) -> None:
    """Whoever removes lines may be another user than who writes on: the app must be able to open its file."""
    with suppress(OSError):  # only root gives files away, and not everywhere
        os.fchown(handle, before.st_uid, before.st_gid)
    os.fchmod(handle, stat.S_IMODE(before.st_mode))


def _last(rest: bytes, judge: Judge) -> bytes:
    """The rest of a file from a line that had no end yet: that one is judged, it may be torn; the others are new."""
    first, newline, others = rest.partition(b"\n")
    return _left(first, judge)[0] + newline + others


def _left(lines: bytes, judge: Judge) -> tuple[bytes, int]:
    """The same number of bytes with what is left, and how many lines are others now."""
    kept, changed = list[bytes](), 0
    for line in lines.split(b"\n"):
        left = judge(line) if line.strip() else line
        if left is None or len(left) > len(line):
            left = b""
        changed += left.rstrip() != line.rstrip()
        kept.append(left.ljust(len(line)))
    return b"\n".join(kept), changed
