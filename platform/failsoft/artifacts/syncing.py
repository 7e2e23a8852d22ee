"""Bytes and names on the disk itself, not only on their way there."""

from __future__ import annotations

import os
from pathlib import Path


def write_synced(path: Path, content: bytes) -> None:
    """Write a file; it is on the disk when this returns, its name only after :func:`sync_folder` of its folder."""
    with path.open("wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())


def sync_tree(folder: Path) -> None:
    """Fsync all that lies in a folder, and the folder."""
    for path in [*folder.rglob("*"), folder]:
        sync_folder(path)


def sync_folder(path: Path) -> None:
    """Fsync a folder or file through a read handle."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
