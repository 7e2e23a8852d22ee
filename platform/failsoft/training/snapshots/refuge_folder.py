"""The files of snapshots in memory of the host: made, found, locked and swept. Knows nothing of what is in them.

``<root>/failsoft-<user>/<run>/rank-0000-of-0002/`` holds ``lock``, ``body-…`` (numbers, mapped) and ``note-…`` (see
:mod:`failsoft.training.snapshots.refuge_note`). The lock is the kernel's and goes with the process, however that ends,
so what is not locked has no worker. Only this user may read or write any of it.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import secrets
import shutil
import stat
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from failsoft.health.clock import Clock
from failsoft.training.snapshots.refuge_note import Note, Owner, read_note

_LOCK, _BODY, _NOTE = "lock", "body-", "note-"
_LOOK_EVERY_S = 0.05


@dataclass(frozen=True, kw_only=True, eq=False)
class Body:
    """A file that is mapped: its bytes outlive the process, not the host."""

    path: Path
    numbers: NDArray[np.uint8]


class RefugeFolder:
    """One rank's folder, locked from :meth:`open` to :meth:`close`.

    Args:
        root: a file system in memory; ``/dev/shm``.
        owner: whose it is.
    """

    def __init__(self, root: Path, owner: Owner) -> None:
        self._root = root
        self._top = root / f"failsoft-{os.getuid()}"
        self._owner = owner
        self._run = self._top / owner.run
        self.path = self._run / f"rank-{owner.rank:04d}-of-{owner.world:04d}"
        self._lock = -1

    def open(self, clock: Clock, *, patience_s: float) -> None:
        """Make it and lock it.

        Raises:
            OSError: it can't be had, and why.
        """
        if not self._root.is_dir():
            raise FileNotFoundError(f"{self._root} is no folder")
        for folder in (self._top, self._run, self.path):
            _own_folder(folder)
        self._lock = os.open(self.path / _LOCK, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
        deadline_s = clock.monotonic_s() + patience_s
        while not _locked(self._lock):
            if clock.monotonic_s() >= deadline_s:
                self.close()
                raise TimeoutError(f"another process holds {self.path}: a worker of this run that has not ended yet")
            clock.sleep_s(_LOOK_EVERY_S)

    def close(self) -> None:
        """Let go of the lock; the files stay."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def notes(self) -> list[Note]:
        """Of this owner and whole, the newest last; bodies are not looked at."""
        found = (read_note(path) for path in self.path.glob(f"{_NOTE}*"))
        mine = [note for note in found if note is not None and note.owner == self._owner]
        return sorted(mine, key=lambda note: (note.moment.position, note.moment.step, note.moment.number))

    def new_body(self, size_bytes: int, *, max_fraction: float) -> Body:
        """Numbers, all 0.

        Raises:
            OSError: there is too little room. (Writing beyond it would kill the process, so it is taken beforehand.)
        """
        left = os.statvfs(self._root)
        free_bytes = left.f_bavail * left.f_frsize
        if size_bytes > max_fraction * free_bytes:
            raise OSError(
                f"{self._root} has {free_bytes} bytes left, and a snapshot's buffer of {size_bytes} may take "
                f"{max_fraction:.0%} of that; give the machine or container more shared memory (--shm-size)"
            )
        path = self.path / f"{_BODY}{secrets.token_hex(4)}"
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW, 0o600)
        try:
            os.posix_fallocate(handle, 0, size_bytes)
            return Body(path=path, numbers=_mapped(handle, size_bytes))
        except OSError:
            path.unlink(missing_ok=True)
            raise
        finally:
            os.close(handle)

    def old_body(self, name: str, size_bytes: int) -> Body:
        """What an earlier worker left.

        Raises:
            OSError: it is gone, or of another size.
        """
        path = self.path / name
        handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        try:
            if os.fstat(handle).st_size != size_bytes:
                raise OSError(f"{path} is not of {size_bytes} bytes")
            return Body(path=path, numbers=_mapped(handle, size_bytes))
        finally:
            os.close(handle)

    def bodies(self) -> dict[str, int]:
        """Sizes of all bodies by name."""
        found: dict[str, int] = {}
        for path in self.path.glob(f"{_BODY}*"):
            with suppress(OSError):
                found[path.name] = path.stat().st_size
        return found

    def write_note(self, note: Note) -> None:
        """Make a snapshot of a body.

        Raises:
            OSError: no room for it.
        """
        aside = self.path / f".{note.body}"
        handle = os.open(aside, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "wb") as out:
            out.write(note.as_bytes())
        aside.replace(self.path / _note_name(note.body))

    def drop_note(self, body: str) -> None:
        """Its body is no snapshot any more."""
        (self.path / _note_name(body)).unlink(missing_ok=True)

    def drop(self, body: str) -> None:
        """Its memory is given back once nobody maps it."""
        self.drop_note(body)
        (self.path / body).unlink(missing_ok=True)

    def others(self) -> list[RefugeFolder]:
        """What lies on this host of other ranks of this run; not opened, so only to be read."""
        shape = f"-of-{self._owner.world:04d}"
        names = sorted(path.name for path in self._run.glob(f"rank-*{shape}") if path != self.path)
        numbers = [int(word) for name in names if (word := name.removeprefix("rank-").removesuffix(shape)).isdecimal()]
        return [RefugeFolder(self._root, replace(self._owner, rank=number)) for number in numbers]

    @property
    def rank(self) -> int:
        """Whose it is."""
        return self._owner.rank

    def remove(self) -> None:
        """All of this rank's, and the run's folder with the last rank."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.close()
        with suppress(OSError):
            self._run.rmdir()

    def sweep(self, now_s: float, *, orphan_after_s: float) -> list[Path]:
        """Remove what no worker will come back for: of this run, and of runs that nobody has touched.

        All ranks of this run have opened theirs. A folder that is locked has a worker; of this run, one that is not is
        of another shape, or of a rank that is on another host now. Another run's may have a worker soon, which waits
        out a back-off, so those are left for ``orphan_after_s``.

        Args:
            now_s: wall time of this host, as its file system has it.
            orphan_after_s: age.
        """
        gone = []
        for folder in self._top.glob("*/rank-*"):
            if folder == self.path:
                continue
            if (folder.parent == self._run or now_s - touched_s(folder) > orphan_after_s) and remove_unless_held(
                folder
            ):
                gone.append(folder)
        return gone


def _note_name(body: str) -> str:
    return f"{_NOTE}{body.removeprefix(_BODY)}"


def _own_folder(folder: Path) -> None:
    """Make it; refuse one that somebody else could have prepared, for the root is open to all users."""
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(f"{folder} is open to other users or theirs; remove it")


def _mapped(handle: int, size_bytes: int) -> NDArray[np.uint8]:
    memory = mmap.mmap(handle, size_bytes)
    with suppress(OSError):  # a kernel without them: copies take a little longer
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, dtype=np.uint8)


def _locked(handle: int) -> bool:
    """A lock of the process: what it forks does not inherit it, so a helper that outlives it holds nothing."""
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def remove_unless_held(folder: Path) -> bool:
    """Remove a rank's folder unless a process holds it; returns whether it is gone."""
    try:
        handle = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
    except OSError:
        return False
    try:
        if not _locked(handle):
            return False
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(handle)
    with suppress(OSError):
        folder.parent.rmdir()
    return True


def touched_s(folder: Path) -> float:
    """Wall time of its file system when anything in a rank's folder changed last; far ahead for what went meanwhile."""
    try:
        return max(path.stat().st_mtime for path in (folder, *folder.iterdir()))
    except OSError:
        return float("inf")
