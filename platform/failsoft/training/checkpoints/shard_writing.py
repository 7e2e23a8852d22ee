"""One checkpoint, written by the writers of all ranks: each its own shard, rank 0's binds them. Knows no torch.

They meet in a hidden folder on the storage that all ranks share, ``.shards-<attempt>-<checkpoint>``. Each writes its
shard aside, syncs and digests it, renames it and leaves a note of size, digest and moment. Rank 0's writer then waits
for the notes of all, and publishes: the shards move into the folder that becomes visible whole, by one rename. A
writer that dies leaves no note, so nothing becomes visible; the hidden folder goes when the next attempt begins, or
with the next checkpoint's sweep.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from failsoft.artifacts.digested import write_digested
from failsoft.artifacts.manifest import FileEntry
from failsoft.artifacts.store import write_durably
from failsoft.errors import ArtifactError, ArtifactMissingError, IncompatibleArtifactError
from failsoft.health.clock import Clock
from failsoft.health.json_object import json_object
from failsoft.training.checkpoints.shard_layout import ShardPlace
from failsoft.training.checkpoints.tensor_file import Stamp

_STAGING = ".shards-"
_LOOK_EVERY_S = 0.02
PATIENCE_S = 200.0
"""For the shards of other ranks, while nothing moves in any of them.

Below the 300 s of a collective, in which the ranks that are done wait.
"""
_ORPHAN_PATIENCE_S = 2.0
"""The same once the training is gone: writers that still live write at full speed then."""


@dataclass(frozen=True, kw_only=True)
class Around:
    """What a writer has around it."""

    clock: Clock
    beat: Callable[[], None] = lambda: None
    """Called while it works, so that a slow disk is told from one that hangs."""
    alone: Callable[[], bool] = lambda: False
    """Whether the training is gone."""
    apart: bool = True
    """Whether this process may be killed when a store hangs: the training itself may not."""


@dataclass(frozen=True, kw_only=True)
class Staging:
    """The hidden folder where the shards of one checkpoint meet."""

    root: Path
    """The store's folder."""
    name: str
    """The checkpoint's."""
    place: ShardPlace

    @property
    def folder(self) -> Path:
        """Of this checkpoint alone."""
        return self.root / f"{_STAGING}{self.place.attempt}-{self.name}"

    def put(self, content: memoryview, moment: Stamp, around: Around) -> FileEntry:
        """Write this rank's shard, and the note that says it is whole.

        Raises:
            OSError: the disk refused; a note of that is left for rank 0's writer, if the disk takes that.
        """
        target, aside = self.folder / self.place.file, self.folder / f".{self.place.file}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            entry = write_digested(aside, content, beat=around.beat)
            aside.rename(target)
        except OSError as error:
            self.note_failure(self.place.rank, str(error))
            raise
        size = {"size_bytes": entry.size_bytes, "digest": entry.digest}
        self._note(self.place.rank, size | {"position": moment.position, "step": moment.step})
        return entry

    def note_failure(self, rank: int, why: str) -> None:
        """A rank's shard will not come. Where not even this can be written, rank 0's writer waits its patience out."""
        with suppress(OSError):
            self._note(rank, {"failed": why})

    def awaited(self, moment: Stamp, around: Around) -> dict[str, FileEntry]:
        """Wait for the notes of all shards.

        Raises:
            ArtifactError: a rank could not write its shard, or it did not come.
            IncompatibleArtifactError: a shard is of another moment.
        """
        seen, moved_s = self._sizes(), around.clock.monotonic_s()
        notes: dict[int, dict[str, Any]] = {}
        while missing := self._missing(notes, moment):
            now, now_s = self._sizes(), around.clock.monotonic_s()
            if now != seen:
                seen, moved_s = now, now_s
            patience_s = _ORPHAN_PATIENCE_S if around.alone() else PATIENCE_S
            if not now_s - moved_s < patience_s:
                raise ArtifactMissingError(
                    f"the shards of ranks {missing} of {self.name} did not come: nothing moved in {self.folder} for "
                    f"{patience_s:.0f} s; all ranks must share this storage, and each must be able to write to it"
                )
            around.beat()
            around.clock.sleep_s(_LOOK_EVERY_S)
        return {
            file: FileEntry(size_bytes=int(notes[rank]["size_bytes"]), digest=str(notes[rank]["digest"]))
            for rank, file in enumerate(self.place.files)
        }

    def move_into(self, aside: Path) -> None:
        """All shards go to where they become visible."""
        for file in self.place.files:
            (self.folder / file).rename(aside / file)

    def sweep(self) -> None:
        """Remove what other attempts left, and this one's of earlier checkpoints; never of one that is to come."""
        for folder in self.root.glob(f"{_STAGING}*"):
            mine = folder.name.startswith(f"{_STAGING}{self.place.attempt}-")
            if not mine or folder.name < self.folder.name:
                shutil.rmtree(folder, ignore_errors=True)

    def remove(self) -> None:
        """Nobody needs it any more."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _note(self, rank: int, said: Mapping[str, Any]) -> None:
        write_durably(self.folder / f"rank-{rank:05d}.json", json.dumps(dict(said)).encode())

    def _missing(self, notes: dict[int, dict[str, Any]], moment: Stamp) -> list[int]:
        """Read the notes that came since; ranks whose note is still to come."""
        for rank in range(self.place.world):
            path = self.folder / f"rank-{rank:05d}.json"
            if rank not in notes and path.exists():
                notes[rank] = json_object(path.read_bytes()) or {"failed": "its note is torn"}
                refuse_note(notes[rank], moment, name=self.name, rank=rank)
        return [rank for rank in range(self.place.world) if rank not in notes]

    def _sizes(self) -> dict[str, int]:
        """What tells that somebody is at work: rises as shards grow."""
        try:
            return {path.name: path.stat().st_size for path in self.folder.iterdir()}
        except OSError:  # one was renamed while it was looked at: that is a move, too
            return {}


def sweep_left(root: Path) -> None:
    """Remove what attempts before this one left in a store, whether this one writes shards or not."""
    for folder in root.glob(f"{_STAGING}*"):
        shutil.rmtree(folder, ignore_errors=True)


def refuse_note(note: Mapping[str, Any], moment: Stamp, *, name: str, rank: int) -> None:
    """Refuse what a rank says of its shard.

    Raises:
        ArtifactError: it could not be written.
        IncompatibleArtifactError: it is of another moment.
    """
    if "failed" in note:
        raise ArtifactError(f"rank {rank} could not write its shard of {name}: {note['failed']}")
    wanted = {"position": moment.position, "step": moment.step}
    said = {key: note.get(key) for key in wanted}
    if said != wanted:
        raise IncompatibleArtifactError(f"shards of different steps: {name} is of {wanted}, rank {rank}'s says {said}")
