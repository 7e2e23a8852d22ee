"""A disk as slow as a far NFS server, or one that hangs, with a dial that is turned while processes use it.

A few lines of C that a process loads before libc: each call that would ask the server (open, stat, rename, unlink,
mkdir, fsync …) of a path below one folder takes as long as the dial says; reads and writes meet the page cache. What
runs is the real program on a real file system, in threads that let go of the interpreter as they do in any wait.
"""

from __future__ import annotations

import mmap
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")
HANGS = -1
WHY_NOT = None if shutil.which("gcc") else "the slow disk is a few lines of C, and there is no gcc here"
"""Why there can be no such disk here; None: there can."""


@dataclass(frozen=True, kw_only=True)
class SlowDisk:
    """What lies below :attr:`root` is on it, for processes that have :attr:`environment`."""

    root: Path
    library: Path
    dial: mmap.mmap

    @property
    def environment(self) -> dict[str, str]:
        """Of a process that uses it."""
        dial = self.library.with_suffix(".dial")
        return {"LD_PRELOAD": str(self.library), "SLOW_DISK_ROOT": str(self.root), "SLOW_DISK_DIAL": str(dial)}

    def turn(self, each_ms: int) -> None:
        """From now on each question takes so long; :data:`HANGS`: until the dial is turned again."""
        self.dial[:4] = struct.pack("i", each_ms)


@contextmanager
def slow_disk(root: Path, folder: Path) -> Iterator[SlowDisk]:
    """A disk that is quick until it is turned.

    Args:
        root: what is on it.
        folder: for the library and the dial; not on it.
    """
    library = folder / "slow_disk.so"
    done = subprocess.run(
        ["gcc", "-O1", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    path = library.with_suffix(".dial")
    path.write_bytes(struct.pack("i", 0))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 4) as dial:
        disk = SlowDisk(root=root, library=library, dial=dial)
        try:
            yield disk
        finally:
            disk.turn(0)  # whoever hangs in it goes on, and can be ended
