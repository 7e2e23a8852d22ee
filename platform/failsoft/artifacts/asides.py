"""Folders and files that are being filled: locked while their writer lives, so what a killed one left can be told.

The lock is the kernel's (flock on the folder itself): it ends with the process, however that ends, and no clock, number
of a process or mark in a file has to be believed. On a file system without such locks nothing is ever found to be left.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from failsoft.errors import ArtifactError, ArtifactMissingError

HIDDEN = ".aside-"
"""How the name of a folder begins that is to be published, or of a file that is to take another's place."""
_FILE = re.compile(re.escape(HIDDEN) + r".+-[0-9a-f]{8}", re.DOTALL)
_OLD_S = 3600.0
"""A file that was made just now may not be locked yet. Told by the file system's clock, not by any machine's."""


@contextmanager
def being_filled(folder: Path) -> Iterator[None]:
    """Make a folder and hold it until the end of the block; what becomes of it is the caller's affair.

    Raises:
        OSError: it can't be made, or is there.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _opened(folder.parent) as parent:
        _locked(parent, fcntl.LOCK_SH)  # nobody looks between making it and holding it
        folder.mkdir()
        held = os.open(folder, os.O_RDONLY)
        _locked(held, fcntl.LOCK_SH)
    try:
        yield
    finally:
        os.close(held)


@contextmanager
def being_written(file: Path) -> Iterator[None]:
    """Make an empty file and hold it until the end of the block, under whatever name.

    Raises:
        OSError: it can't be made, or is there.
    """
    held = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        _locked(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(held)


def has_it_alone(handle: int) -> bool:
    """Take the lock of an open file, to keep it until the file is closed or the process ends.

    Args:
        handle: of a file or folder.

    Returns:
        False: another one has it. True also on a file system without locks, where nobody can be told from another.
    """
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def replace_whole(path: Path, content: bytes) -> None:
    """Replace one file: a reader sees the old or the new content, never a part.

    For what need not outlive a loss of power, and must not wait for a disk as ``write_durably`` does. What killed
    writers left aside in that folder is removed.

    Raises:
        OSError: the folder takes none; the old content stands.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = aside_of(path)
    try:
        with being_written(aside):
            aside.write_bytes(content)
            aside.replace(path)
    except BaseException:  # the half-written file must not stay; re-raised
        with suppress(OSError):  # storage that refuses this, too: what it said first is told
            aside.unlink(missing_ok=True)
        raise
    remove_files_left(path)


def aside_of(path: Path) -> Path:
    """A name beside a file under which its next content is written; found by :func:`remove_files_left`."""
    return path.with_name(f"{HIDDEN}{path.name}-{secrets.token_hex(4)}")


def remove_files_left(beside: Path) -> None:
    """Remove what killed writers left aside in the folder of a file that was written just now; what refuses, stays."""
    with suppress(OSError):
        now_s = beside.stat().st_mtime
        for entry in list(os.scandir(beside.parent)):
            if _FILE.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                _remove_file_if_left(Path(entry.path), now_s)


def _remove_file_if_left(file: Path, now_s: float) -> None:
    with suppress(OSError), _opened(file) as handle:
        if now_s - os.fstat(handle).st_mtime > _OLD_S and _locked(handle, fcntl.LOCK_EX | fcntl.LOCK_NB):
            file.unlink()


@contextmanager
def being_read(folder: Path) -> Iterator[None]:
    """Hold a folder that is there until the end of the block: what is read for minutes is not found to be left.

    Raises:
        ArtifactMissingError: somebody removed it just now.
    """
    gone = ArtifactMissingError(f"{folder} was removed just now; there is nothing left to read")
    try:
        held = os.open(folder, os.O_RDONLY)
    except FileNotFoundError as error:
        raise gone from error
    try:
        _locked(held, fcntl.LOCK_SH)  # waits for whoever removes it
        if not folder.is_dir():
            raise gone
        yield
    finally:
        os.close(held)


def left(parent: Path, pattern: str) -> list[Path]:
    """Folders there that nobody fills any more, by name; none where that can't be known."""
    if not parent.is_dir():
        return []
    with _opened(parent) as handle:
        if not _locked(handle, fcntl.LOCK_EX):  # waits for those who are making one, which takes no time
            return []
        return [folder for folder in sorted(parent.glob(pattern)) if _is_left(folder)]


def remove_if_left(folder: Path) -> bool:
    """Remove a folder that nobody fills; False: it is held, gone, or nobody can tell."""
    if folder not in left(folder.parent, folder.name):
        return False
    try:
        with _opened(folder) as handle:
            if not _locked(handle, fcntl.LOCK_EX | fcntl.LOCK_NB):  # somebody came to read it
                return False
            shutil.rmtree(folder, ignore_errors=True)
    except OSError:  # somebody else removed it just now
        return False
    return not folder.exists()


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Until the end of the block nobody else is who asks for that, too; without such locks everybody is."""
    with _opened(folder) as handle:
        _locked(handle, fcntl.LOCK_EX)
        yield


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    handle = os.open(folder, os.O_RDONLY)
    try:
        yield handle
    finally:
        os.close(handle)


def _locked(handle: int, how: int) -> bool:
    try:
        fcntl.flock(handle, how)
    except OSError:  # held by another one, or a file system without such locks
        return False
    return True


def _is_left(folder: Path) -> bool:
    try:
        with _opened(folder) as handle:
            return _locked(handle, fcntl.LOCK_EX | fcntl.LOCK_NB) and folder.is_dir()
    except OSError:  # gone
        return False


def taken(target: Path) -> ArtifactError:
    """What whoever publishes under a name that is in use hears."""
    return ArtifactError(f"{target} is already published and never changes; publish under another name")


def rename_unless_taken(aside: Path, target: Path) -> None:
    """Make a filled folder visible.

    Raises:
        ArtifactError: another publisher was there first.
        OSError: the disk refuses.
    """
    try:
        aside.rename(target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        raise taken(target) from error
