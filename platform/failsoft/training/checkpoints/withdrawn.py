"""Which checkpoints were taken back: their stretch of the run was undone, so no copy of them may be gone on from.

One line of JSON for each, in the hidden file ``.withdrawn`` beside the checkpoints: name and digest of the manifest. A
copy on a remote store is removed when the store can be reached again; until then this note keeps it from being chosen.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from failsoft.artifacts.store import Artifact
from failsoft.health.json_object import json_object

_NOTE = ".withdrawn"


def note_withdrawn(root: Path, artifacts: Iterable[Artifact]) -> None:
    """Write down that these are taken back; durable when this returns, and to be done before they are removed.

    Raises:
        OSError: the disk refused.
    """
    lines = [json.dumps({"name": one.name, "digest": one.manifest.digest}).encode() + b"\n" for one in artifacts]
    handle = os.open(root / _NOTE, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        os.write(handle, b"\n" + b"".join(lines))
        os.fsync(handle)
    finally:
        os.close(handle)


def withdrawn_digests(root: Path) -> frozenset[str]:
    """Digests of all that were ever taken back here; empty where there is no note."""
    try:
        lines = (root / _NOTE).read_bytes().splitlines()
    except FileNotFoundError:
        return frozenset()
    entries = (json_object(line) for line in lines)
    return frozenset(str(entry["digest"]) for entry in entries if entry is not None and "digest" in entry)
