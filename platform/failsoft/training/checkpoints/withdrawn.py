"""Which checkpoints were taken back: their stretch of the run was undone, so no copy of them may be gone on from.

One line of JSON for each, in the hidden file ``.withdrawn`` beside the checkpoints: name and digest of the manifest, or
the folder on the remote store where its writers brought it there themselves. A copy there is removed when the store can
be reached again; until then this note keeps it from being chosen.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from failsoft.artifacts.store import Artifact, ArtifactStore
from failsoft.health.json_object import json_object
from failsoft.health.ledger import Ledger
from failsoft.training.checkpoints.inspection import position_of

_NOTE = ".withdrawn"


class Withdrawal:
    """Takes checkpoints back. While the disk refuses that, nothing new may be published: names would meet again.

    Args:
        store: the local checkpoints.
        ledger: told of a disk that refuses.
        mirrored: there may be copies on a remote store.
        landed: positions of those that lie on the remote store alone, by folder; others add to it.
    """

    def __init__(
        self, store: ArtifactStore, ledger: Ledger, *, mirrored: bool, landed: dict[str, int] | None = None
    ) -> None:
        self._store = store
        self._ledger = ledger
        self._mirrored = mirrored
        self._landed = {} if landed is None else landed
        self._after: int | None = None

    def begin(self, after: int) -> list[str]:
        """Take back what lies beyond a position; returns the names of those that are gone, none if the disk refuses."""
        self._after = after
        try:
            return self._carried_out()
        except OSError as error:
            why = f"{error}; checkpoints of an undone stretch stay until the disk lets them go, training goes on"
            self._ledger.record("checkpoint_withdrawal_refused", why, position=after)
        return []

    def refused(self) -> str | None:
        """Try again what is still to be done; why nothing may be published yet, or None."""
        try:
            self._carried_out()
        except OSError as error:
            return f"checkpoints of an undone stretch can't be removed first: {error}"
        return None

    def _carried_out(self) -> list[str]:
        after = self._after
        if after is None:
            return []
        undone = [one for one in self._store.listing() if position_of(one.manifest) > after]
        away = [folder for folder, position in self._landed.items() if position > after]
        if (undone and self._mirrored) or away:
            note_withdrawn(self._store.root, undone, away)
        for artifact in undone:
            self._store.remove(artifact.name)
        for folder in away:
            del self._landed[folder]
        self._after = None
        return [artifact.name for artifact in undone] + [folder.rpartition(".")[0] for folder in away]


def note_withdrawn(root: Path, artifacts: Iterable[Artifact], folders: Iterable[str] = ()) -> None:
    """Write down that these are taken back; durable when this returns, and to be done before they are removed.

    Args:
        root: of the local checkpoints.
        artifacts: those that lie here.
        folders: of those that lie on the remote store alone.

    Raises:
        OSError: the disk refused.
    """
    entries = [{"name": one.name, "digest": one.manifest.digest} for one in artifacts]
    entries += [{"name": folder.rpartition(".")[0], "folder": folder} for folder in folders]
    lines = [json.dumps(entry).encode() + b"\n" for entry in entries]
    root.mkdir(parents=True, exist_ok=True)
    handle = os.open(root / _NOTE, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        os.write(handle, b"\n" + b"".join(lines))
        os.fsync(handle)
    finally:
        os.close(handle)


def withdrawn(root: Path) -> frozenset[str]:
    """Digests, and folders on the remote store, of all that were ever taken back; empty where there is no note."""
    try:
        lines = (root / _NOTE).read_bytes().splitlines()
    except FileNotFoundError:
        return frozenset()
    entries = (json_object(line) for line in lines)
    kinds = ("digest", "folder")
    return frozenset(str(entry[kind]) for entry in entries if entry is not None for kind in kinds if kind in entry)
