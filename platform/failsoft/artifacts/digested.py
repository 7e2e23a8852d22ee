"""Files that are digested while they are written, so that large ones are not read once more for it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from blake3 import blake3

from failsoft.artifacts.manifest import FileEntry

_CHUNK_BYTES = 4 * 1024 * 1024
_SYNC_EVERY_BYTES = 64 * 1024 * 1024


def write_digested(path: Path, content: memoryview, *, beat: Callable[[], None]) -> FileEntry:
    """Write bytes piece by piece, synced on the way, and digest them as they go by.

    Args:
        path: the file, in a folder that nobody reads yet.
        content: what to write; must not change meanwhile.
        beat: called after each piece, so that a slow disk is told from one that hangs.
    """
    hasher, unsynced = blake3(), 0
    with path.open("wb", buffering=0) as out:
        for begin in range(0, len(content), _CHUNK_BYTES):
            piece = content[begin : begin + _CHUNK_BYTES]
            _write_whole(out.fileno(), piece)
            hasher.update(piece)
            unsynced += len(piece)
            if unsynced >= _SYNC_EVERY_BYTES:  # no flood of unwritten pages that one fsync then waits minutes for
                os.fsync(out.fileno())
                unsynced = 0
            beat()
        os.fsync(out.fileno())
    return FileEntry(size_bytes=len(content), digest=f"blake3:{hasher.hexdigest()}")


def _write_whole(handle: int, content: memoryview) -> None:
    while content:
        content = content[os.write(handle, content) :]
