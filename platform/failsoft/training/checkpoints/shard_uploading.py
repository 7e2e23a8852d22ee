"""One checkpoint whose shards the writers of all ranks bring to a remote store, where the ranks share no storage.

Each uploads its shard into the folder that was drawn for the checkpoint, sees that the store has it, and leaves a note
of size, digest and moment there. Rank 0's writer waits for the notes of all, looks at the sizes, and writes the
manifest last: until then nothing is visible. A writer that is killed leaves no note, or one of a whole shard, which
nobody writes over. What never gets a manifest is swept as every unfinished folder is. Knows no torch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from failsoft.artifacts.address import hushed
from failsoft.artifacts.manifest import FileEntry, Manifest
from failsoft.artifacts.remote_assembly import LANDING, RemoteAssembly
from failsoft.artifacts.remote_place import place_of, place_on
from failsoft.errors import ArtifactError, ArtifactMissingError, FailsoftError
from failsoft.health.json_object import json_object
from failsoft.training.checkpoints.formats import SCALARS
from failsoft.training.checkpoints.landing import Landing
from failsoft.training.checkpoints.mirror_filesystem import unpacked
from failsoft.training.checkpoints.parts import in_words
from failsoft.training.checkpoints.shard_layout import ShardPlace
from failsoft.training.checkpoints.shard_writing import PATIENCE_S, Around, refuse_note
from failsoft.training.checkpoints.tensor_file import Stamp
from failsoft.training.checkpoints.writer_order import Order, Written

_FIRST_LOOK_S, _LONGEST_LOOK_S = 0.05, 1.0
_ORPHAN_PATIENCE_S = 20.0
"""For shards of other ranks once the training is gone; a store shows nothing of an upload until it is whole."""
_TIMES_OWN = 3.0
"""A rank's shard takes about as long as any other's; so many times that is waited for at least."""


def uploaded(order: Order, landing: Landing, memory: memoryview, around: Around) -> Written:
    """Bring this rank's part there; rank 0's binds all of them.

    Raises:
        OSError: the store refused, or can't be reached; nothing became visible.
        ArtifactError: another rank's shard did not come, or no process may be killed for it; nothing became visible.
        IncompatibleArtifactError: shards are of different moments; nothing became visible.
    """
    place = order.shard
    if place is None or not around.apart:
        raise ArtifactError("there is no process that could upload it, and the training must not wait for a store")
    try:
        there = place_on(unpacked(landing.filesystem), landing.url) if landing.filesystem else place_of(landing.url)
        met = RemoteAssembly(there, landing.folder)
        meeting = _Meeting(there=met, place=place, moment=order.moment(), around=around)
        if not place.leads:
            return Written(size_bytes=meeting.bring(memory[: order.tensors_bytes]))
        return _bound(order, landing, memory, meeting)
    except (OSError, FailsoftError):
        raise
    except Exception as error:  # each file system raises what it likes, and the writer must live on
        raise OSError(hushed(f"{type(error).__name__}: {error}", landing.url)) from error


def _bound(order: Order, landing: Landing, memory: memoryview, meeting: _Meeting) -> Written:
    begin, end = order.tensors_bytes, order.tensors_bytes + order.scalars_bytes
    if meeting.there.bound():
        return Written(size_bytes=end)
    clock = meeting.around.clock
    began_s = clock.monotonic_s()
    meeting.bring(memory[:begin])
    scalars = meeting.there.put(SCALARS, memory[begin:end], beat=meeting.around.beat)
    files = meeting.awaited(own_s=clock.monotonic_s() - began_s) | {SCALARS: scalars}
    parts = in_words(dict.fromkeys(files, order.moment()))
    meta = dict(order.meta) | {"parts": parts, LANDING: landing.digits}
    manifest = Manifest(kind=order.kind, created_at_s=clock.wall_s(), files=dict(sorted(files.items())), meta=meta)
    meeting.there.bind(manifest.signed(order.name))
    meeting.tidy()
    return Written(size_bytes=sum(entry.size_bytes for entry in files.values()))


@dataclass(frozen=True, kw_only=True)
class _Meeting:
    """One rank's view of the folder."""

    there: RemoteAssembly
    place: ShardPlace
    moment: Stamp
    around: Around

    def bring(self, content: memoryview) -> int:
        """This rank's shard and its note, unless a writer before brought both: nobody writes over what may count.

        The notes go when all is bound, so their absence says nothing before that was looked at, too, and later.
        """
        if "digest" in self._note_of(self.place.rank) or self.there.bound():
            return len(content)
        try:
            entry = self.there.put(self.place.file, content, beat=self.around.beat)
        except Exception as error:  # each file system raises what it likes; the others are told, and it is re-raised
            with suppress(Exception):  # the store takes nothing; rank 0's writer waits its patience out
                self._say({"failed": str(error)})
            raise
        self._say(asdict(entry) | asdict(self.moment))
        return entry.size_bytes

    def awaited(self, *, own_s: float) -> dict[str, FileEntry]:
        """Wait for the notes of all.

        Args:
            own_s: how long this rank's own upload took.
        """
        clock = self.around.clock
        notes: dict[int, Mapping[str, Any]] = {}
        look_s, moved_s, still = _FIRST_LOOK_S, clock.monotonic_s(), self.place.world
        while missing := self._missing(notes):
            if len(missing) != still:
                still, moved_s = len(missing), clock.monotonic_s()
            patience_s = _ORPHAN_PATIENCE_S if self.around.alone() else max(PATIENCE_S, _TIMES_OWN * own_s)
            if not clock.monotonic_s() - moved_s < patience_s:
                raise ArtifactMissingError(
                    f"the shards of ranks {missing} did not come to {self.there.shown}: no note of them within "
                    f"{patience_s:.0f} s; each rank must be able to write there"
                )
            self.around.beat()
            clock.sleep_s(look_s)
            look_s = min(2.0 * look_s, _LONGEST_LOOK_S)
        return {
            file: FileEntry(size_bytes=int(notes[rank]["size_bytes"]), digest=str(notes[rank]["digest"]))
            for rank, file in enumerate(self.place.files)
        }

    def tidy(self) -> None:
        """The notes are in the manifest now."""
        with suppress(Exception):  # they disturb nobody
            for rank in range(self.place.world):
                self.there.drop(_note_name(rank))

    def _missing(self, notes: dict[int, Mapping[str, Any]]) -> list[int]:
        names = self.there.sizes()
        for rank in range(self.place.world):
            note = self._note_of(rank) if rank not in notes and _note_name(rank) in names else {}
            if note:
                refuse_note(note, self.moment, name=self.there.shown, rank=rank)
                notes[rank] = note
        return [rank for rank in range(self.place.world) if rank not in notes]

    def _note_of(self, rank: int) -> Mapping[str, Any]:
        """Empty while there is none, or only a part of one."""
        return json_object(self.there.said(_note_name(rank)) or b"") or {}

    def _say(self, said: Mapping[str, Any]) -> None:
        self.there.say(_note_name(self.place.rank), json.dumps(dict(said)).encode())


def _note_name(rank: int) -> str:
    return f"rank-{rank:05d}.json"
