"""The files of a ledger: the one that is written, and those that were full, numbered in order beside it.

``ledger.jsonl`` is renamed to ``ledger-000001.jsonl`` when it is full, and so on. Writers open the file for each event,
so one that comes just then writes into the one or the other, and no line is lost. Which of two writers renames is
settled by a lock on a file beside it; a reader needs none. Lines are taken out by :mod:`failsoft.health.line_removal`
alone, which puts a file of the same length in a file's place: every position in it stays what it was.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
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


def append_line(path: Path, line: bytes) -> int:
    """Add a line, which ends with a newline, by one ``write``; only its owner may read the file.

    Returns:
        Bytes of the file now.

    Raises:
        OSError: the disk refuses, or took only a part of the line, which is torn then.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        handle = os.open(path, os.O_APPEND | os.O_CREAT | os.O_RDWR, 0o600)
        try:
            _share(handle)
            if _is_at(
                handle, path
            ):  # else another was put in its place just now: nobody would read what is written here
                if not os.fstat(handle).st_size:
                    _give_to_owner_of(path.parent, handle)
                _write_whole(handle, _mend(handle) + line, path)
                return os.fstat(handle).st_size
        finally:
            os.close(handle)


def _share(handle: int) -> None:
    """Hold off whoever would put another file in its place; where a file system has no locks nothing does."""
    with suppress(OSError):
        fcntl.flock(handle, fcntl.LOCK_SH)


def _is_at(handle: int, path: Path) -> bool:
    """Whether the path still leads to it. How many names it has would not tell: a backup's hard link is one, too."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _give_to_owner_of(folder: Path, handle: int) -> None:
    """A file that root makes by a command belongs to whoever the folder belongs to: it is written by the app, too."""
    if os.geteuid() == 0:
        owner = folder.stat()
        with suppress(OSError):  # root of a container, or of another machine's disk, may not give files away
            os.fchown(handle, owner.st_uid, owner.st_gid)


def _write_whole(handle: int, content: bytes, path: Path) -> None:
    """A disk that becomes full in the middle takes what fits, and says so by nothing but a smaller number."""
    taken = os.write(handle, content)
    if taken != len(content):
        raise OSError(errno.ENOSPC, f"only {taken} of {len(content)} bytes were taken", str(path))


def _mend(handle: int) -> bytes:
    """A newline if the last line was torn, so that the new one does not drown in it."""
    size = os.fstat(handle).st_size
    return b"\n" if size and os.pread(handle, 1, size - 1) != b"\n" else b""


def put_away(path: Path, *, full_bytes: int = FULL_BYTES) -> Path | None:
    """Give the ledger at ``path`` the next number if it is full, so that the next event begins a new file.

    Returns:
        Where it lies now; None when it is not full, or another process has just done it.

    Raises:
        OSError: the disk refuses; the ledger goes on as it is.
    """
    with only_one(path):
        if not path.exists() or path.stat().st_size < full_bytes:
            return None
        before = archives(path)
        number = _number(before[-1]) + 1 if before else 1
        with path.open("rb") as file:
            with suppress(OSError):  # who is writing ends first, who comes later writes into the next one
                fcntl.flock(file, fcntl.LOCK_EX)
            return path.rename(path.with_name(f"{path.stem}-{number:0{_DIGITS}}{path.suffix}"))


@contextmanager
def only_one(path: Path) -> Iterator[None]:
    """Be the only one who moves or removes files of the ledger at ``path``; others may go on writing and reading.

    Raises:
        OSError: the disk refuses, or has no locks.
    """
    with path.with_name(f".{path.name}.lock").open("ab") as lock:
        os.fchmod(lock.fileno(), 0o600)
        _give_to_owner_of(path.parent, lock.fileno())
        fcntl.flock(lock, fcntl.LOCK_EX)  # given back when the file is closed, or its process dies
        yield


def all_lines(path: Path) -> Iterator[bytes]:
    """Every line that is not blank, oldest first, each once even while files are put away and replaced."""
    files, now = _all_files(path)
    try:
        for there in files:
            lines = _opened(there)
            if lines is None:  # the oldest are removed where only the newest are kept
                continue
            with lines:
                yield from (line for line in lines if line.strip())
        if now is not None:
            yield from (line for line in now if line.strip())
    finally:
        if now is not None:
            now.close()


def _all_files(path: Path) -> tuple[list[Path], BinaryIO | None]:
    """The full ones, and the one that is written, as they were at one moment."""
    while True:
        before, now = archives(path), _opened(path)
        if archives(path) == before:
            return before, now
        if now is not None:  # put away just now, it may be
            now.close()


@dataclass(frozen=True, kw_only=True)
class Position:
    """How far somebody has read: the number of a file (the one that is written has the next), and bytes of it."""

    file: int = 0
    bytes: int = 0


def last_bytes(path: Path, at_most: int) -> Position:
    """A place behind which lie about so many bytes, or fewer; it may be in the midst of a line, which is torn then."""
    for number, there in sorted(_numbered(path).items(), reverse=True):
        size = _size(there)
        if size > at_most:
            return Position(file=number, bytes=size - at_most)
        at_most -= size
    return Position()


class Tail:
    """The lines that were added since it last looked, at first all of them; follows the ledger into its next file.

    The file before is still looked at: where there are no locks, a writer that had opened it may have been slow. What
    one writes there that was slow for the length of a whole file is in the ledger, and not seen here.
    """

    def __init__(self, path: Path, *, after: Position | None = None) -> None:
        """``after``: begin there, as an earlier one's :attr:`position` says; None begins with the oldest file."""
        self._path = path
        self._after = after or Position()
        self._parts: list[_Part] = []

    @property
    def position(self) -> Position:
        """Behind the last whole line that was given out."""
        return self._parts[-1].position if self._parts else self._after

    def new_lines(self) -> list[bytes]:
        """Whole lines only: one that is still being written comes with a later look."""
        return [line for lines in self.file_by_file() for line in lines]

    def file_by_file(self) -> Iterator[list[bytes]]:
        """The same, in as many lists as there are files, so that no more than one has to be held."""
        yield self._rest()
        while self._move_on():
            yield self._rest()
            while len(self._parts) > _LOOKED_AT:
                self._parts.pop(0).file.close()

    def skip(self) -> None:
        """Pass over all that is there now."""
        for _ in self.file_by_file():
            pass

    def close(self) -> None:
        """Give the files back; the position stays."""
        self._after = self.position
        for part in self._parts:
            part.file.close()
        self._parts.clear()

    def _rest(self) -> list[bytes]:
        return [line for part in self._parts for line in part.rest()]

    def _move_on(self) -> bool:
        """To the file that follows the one at hand; False when there is none yet."""
        while not (self._parts and _same(self._parts[-1].file, self._path)):
            files = _numbered(self._path)
            number = self._next_of(files)
            file = _opened(files[number])
            if file is None:
                return False
            if not _same(file, _numbered(self._path).get(number, self._path)):
                file.close()  # put away between the two looks: that was a later file
                continue
            begin = self.position.bytes if number == self.position.file else 0  # the same one, some lines taken out
            if begin > os.fstat(file.fileno()).st_size:  # somebody removed the ledger, and another one was begun
                begin = 0
            if self._parts and number == self._parts[-1].number:
                self._parts.pop().file.close()  # what is in it to be read is in the other, too
            self._parts.append(_Part(file, number, begin))
            return True
        return False

    def _next_of(self, files: dict[int, Path]) -> int:
        """The number after the one at hand; the same, where another file was put in that one's place."""
        here = self._after.file
        if self._parts:
            last = self._parts[-1]
            replaced = last.number in files and not _same(last.file, files[last.number])
            here = last.number if replaced else last.number + 1
        return min((number for number in files if number >= here), default=max(files))


class _Part:
    """A file that is read as it grows."""

    def __init__(self, file: BinaryIO, number: int, begin: int) -> None:
        self.file = file
        self.number = number
        self._read = file.seek(begin)
        self._begun = b""

    @property
    def position(self) -> Position:
        return Position(file=self.number, bytes=self._read - len(self._begun))

    def rest(self) -> list[bytes]:
        news = self.file.read()
        self._read += len(news)
        *whole, self._begun = (self._begun + news).split(b"\n")
        return [line for line in whole if line.strip()]


def _numbered(path: Path) -> dict[int, Path]:
    """All files by number. The one that is written has the next: what is put away just now keeps that number."""
    files = {_number(there): there for there in archives(path)}
    return files | {max(files, default=0) + 1: path}


def _opened(path: Path) -> BinaryIO | None:
    try:
        return path.open("rb")
    except FileNotFoundError:
        return None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # put away, or removed, since it was listed
        return 0


def _same(opened: BinaryIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(opened.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _number(path: Path) -> int:
    return int(path.stem.rsplit("-", 1)[1])
