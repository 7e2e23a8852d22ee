"""Snapshot buffers in memory of the host: a worker that is killed goes on from its last snapshot, not from disk.

The buffers are files of a file system in memory, mapped: what is copied there is the snapshot, there is no second copy.
A note makes them one, before the next step begins: so a worker that is killed repeats no more steps than lie between
two snapshots. A thread behind the training then sums the numbers up and writes the sum into the note; the training
waits for it only when the next snapshot is due. Of a worker that is killed before, the next one sees by each number's
being finite, which it was when it was copied, that nobody has touched them.

A host that has no room for it is no error: snapshots then lie in the process's own memory, :attr:`Refuge.refusal` says
why, and a restart begins with the checkpoint on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from failsoft.training.snapshots.arena import Arena
from failsoft.training.snapshots.refuge_folder import Body, RefugeFolder
from failsoft.training.snapshots.refuge_note import Moment, Note, Owner, checksum, parts_as_json
from failsoft.training.snapshots.room import OwnRoom
from failsoft.training.snapshots.snapshot_layout import Division
from failsoft.training.snapshots.snapshot_place import SnapshotPlace
from failsoft.training.snapshots.snapshot_restore import Held


class Refuge:
    """A :class:`failsoft.training.snapshots.room.Room` that outlives the process.

    Args:
        folder: open.
        owner: whose it is.
        place: how the state is divided between the ranks.
        group: of this group of workers; the same on all ranks.
        max_fraction: of what the host's memory file system has left, for one buffer.
        beside: called with each snapshot; goes into its note.
    """

    def __init__(
        self,
        folder: RefugeFolder,
        *,
        owner: Owner,
        place: SnapshotPlace,
        group: str,
        max_fraction: float,
    ) -> None:
        self.beside: Callable[[], Mapping[str, Any]] = dict
        """Called with each snapshot; small JSON that a restart needs and a rollback does not."""
        self.refusal: str | None = None
        """Why snapshots lie in the process's own memory, and go with it."""
        self.folder = folder
        """Where its files lie."""
        self._owner = owner
        self._place = place
        self._group = group
        self._max_fraction = max_fraction
        self._number = 0
        self._own = OwnRoom()
        self._bodies: dict[int, Body] = {}
        """By the address of their memory."""
        self._pinned: set[int] = set()
        self._behind = ThreadPoolExecutor(max_workers=1, thread_name_prefix="snapshot-note")
        self._sealing: Future[None] | None = None
        self._parts: tuple[Division | None, str] = (None, "")

    def outliving_bytes(self) -> int:
        """See :class:`failsoft.training.snapshots.room.Room`."""
        return sum(len(body.numbers) for body in self._bodies.values())

    def spare_bytes(self) -> int:
        """Of bodies that an earlier worker left."""
        mapped = {body.path.name for body in self._bodies.values()}
        return sum(size for name, size in self.folder.bodies().items() if name not in mapped)

    def buffer(self, size_bytes: int, *, pinned: bool) -> Tensor:
        """See :class:`failsoft.training.snapshots.room.Room`."""
        if self.refusal is None:
            try:
                return self._mapped(max(1, size_bytes), pinned=pinned)[:size_bytes]
            except OSError as error:
                self._refuse(error)
        return self._own.buffer(size_bytes, pinned=pinned)

    def settle(self) -> None:
        """See :class:`failsoft.training.snapshots.room.Room`."""
        sealing, self._sealing = self._sealing, None
        if sealing is None:
            return
        try:
            sealing.result()
        except OSError as error:
            self._refuse(error)

    def filling(self, arena: Arena) -> None:
        """See :class:`failsoft.training.snapshots.room.Room`."""
        body = self._bodies.get(arena.address)
        if body is not None:
            self.folder.drop_note(body.path.name)

    def whole(self, held: Held, *, in_use: Sequence[Arena]) -> None:
        """See :class:`failsoft.training.snapshots.room.Room`."""
        body = self._bodies.get(held.arena.address)
        addresses = {arena.address for arena in in_use}
        for address in self._bodies.keys() - addresses:
            self._let_go(address)
        self._number += 1
        if body is None or self.refusal is not None:
            return
        moment = Moment(
            group=self._group,
            number=self._number,
            position=int(held.scalars["position"]),
            step=int(held.scalars["step"]),
        )
        note, kept = self._note(body, moment, held), set(self._bodies.values())
        try:
            self.folder.write_note(note)
        except OSError as error:
            self._refuse(error)
            return
        self._sealing = self._behind.submit(lambda: self._seal(body, note, kept))

    def free(self, arena: Arena) -> None:
        """See :class:`failsoft.training.snapshots.room.Room`."""
        self.settle()
        body = self._let_go(arena.address)
        if body is not None:
            self.folder.drop(body.path.name)

    def withdraw(self, *, after: int) -> None:
        """See :class:`failsoft.training.snapshots.room.Room`."""
        self.settle()
        for note in self.folder.notes():
            if note.moment.position > after:
                self.folder.drop_note(note.body)

    def keep_only(self, note: Note | None) -> None:
        """Whatever was left behind of other moments is no snapshot any more; its memory is used again."""
        for other in self.notes():
            if note is None or other.body != note.body:
                self.folder.drop_note(other.body)

    def notes(self) -> list[Note]:
        """Snapshots that are there, the newest last; those of earlier workers at first."""
        self.settle()
        return self.folder.notes()

    def on_host(self) -> dict[int, list[Note]]:
        """By rank, the snapshots of this run that lie on this host; its own rank's are there in any case."""
        found = {folder.rank: folder.notes() for folder in self.folder.others()}
        return found | {self._owner.rank: self.notes()}

    def landing(self, note: Note) -> Body:
        """Room for the numbers of a snapshot that comes from another host.

        Raises:
            OSError: there is none.
        """
        return self.folder.new_body(note.size_bytes, max_fraction=self._max_fraction)

    def held(self, note: Note, device: torch.device) -> Held | None:
        """What an earlier worker left; None when it is not what the note says.

        Args:
            note: one of :meth:`notes`.
            device: where this process has what was on an accelerator.
        """
        try:
            body = self.folder.old_body(note.body, note.size_bytes)
            if note.checksum and checksum(body.numbers) != note.checksum:
                return None
            held = held_of(note, torch.from_numpy(body.numbers), device)
            return held if note.checksum or held.arena.all_finite() else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def sweep(self, now_s: float, *, orphan_after_s: float) -> None:
        """See :meth:`failsoft.training.snapshots.refuge_folder.RefugeFolder.sweep`."""
        self.folder.sweep(now_s, orphan_after_s=orphan_after_s)

    def close(self) -> None:
        """What is on its way becomes whole, and stays for the next worker."""
        self.settle()
        self._behind.shutdown()
        self.folder.close()

    def remove(self) -> None:
        """Nobody will come back for it."""
        self.settle()
        self._behind.shutdown()
        self.folder.remove()

    def _mapped(self, size_bytes: int, *, pinned: bool) -> Tensor:
        body = self._left_behind(size_bytes) or self.folder.new_body(size_bytes, max_fraction=self._max_fraction)
        body.numbers[:] = 0  # touched; and what lies between slices counts as healthy
        memory = torch.from_numpy(body.numbers)
        if pinned:
            self._pin(body, memory)
        self._bodies[memory.data_ptr()] = body
        return memory

    def _pin(self, body: Body, memory: Tensor) -> None:
        """Let CUDA copy straight into it.

        Raises:
            OSError: CUDA refuses.
        """
        failed = int(_cuda().cudaHostRegister(memory.data_ptr(), memory.nbytes, 0))
        if failed:
            self.folder.drop(body.path.name)
            raise OSError(f"CUDA can't pin {memory.nbytes} bytes of shared memory: error {failed} of cudaHostRegister")
        self._pinned.add(memory.data_ptr())

    def _let_go(self, address: int) -> Body | None:
        if address in self._pinned:
            self._pinned.remove(address)
            _cuda().cudaHostUnregister(address)
        return self._bodies.pop(address, None)

    def _left_behind(self, size_bytes: int) -> Body | None:
        """A body of an earlier worker that is no snapshot, or an older one, so that none is ever there three times."""
        mapped = {body.path.name for body in self._bodies.values()}
        newest = {note.body for note in self.folder.notes()[-1:]}
        for name, size in self.folder.bodies().items():
            if name not in mapped | newest and size == size_bytes:
                self.folder.drop_note(name)
                return self.folder.old_body(name, size_bytes)
        return None

    def _note(self, body: Body, moment: Moment, held: Held) -> Note:
        """Of numbers that are whole, and not yet summed up."""
        return Note(
            owner=self._owner,
            moment=moment,
            body=body.path.name,
            size_bytes=len(body.numbers),
            checksum="",
            place=self._place,
            parts=self._parts_of(held.division),
            scalars=held.scalars,
            rng=held.rng.as_json(),
            beside=dict(self.beside()),
        )

    def _seal(self, body: Body, note: Note, kept: set[Body]) -> None:
        """Behind the training."""
        self.folder.write_note(replace(note, checksum=checksum(body.numbers)))
        names = {one.path.name for one in kept}
        for name, size in self.folder.bodies().items():
            if name not in names:
                self.folder.drop_note(name)
                if len(kept) > 1 or size != note.size_bytes:  # else it is the next buffer
                    self.folder.drop(name)

    def _parts_of(self, division: Division) -> str:
        if self._parts[0] is not division:
            self._parts = (division, parts_as_json(division.parts))
        return self._parts[1]

    def _refuse(self, error: OSError) -> None:
        self.refusal = (
            f"{error}; snapshots lie in the worker's own memory from here on: if it is killed, it goes on from its "
            "last checkpoint on disk"
        )


def held_of(note: Note, memory: Tensor, device: torch.device) -> Held:
    """A snapshot over memory that holds its numbers already.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: the note does not describe this memory.
    """
    division = note.division(device)

    def buffer(size_bytes: int, *, pinned: bool) -> Tensor:
        if max(1, size_bytes) != memory.nbytes:
            raise ValueError(f"{memory.nbytes} bytes for numbers of {size_bytes}, pinned or not ({pinned})")
        return memory[:size_bytes]

    arena = Arena(division.kept_by(note.owner.rank), buffer=buffer)
    return Held(
        arena=arena,
        division=division,
        digest=division.digest() if note.place is not SnapshotPlace.EACH_RANK else "",
        scalars=dict(note.scalars),
        rng=note.generators(),
    )


def _cuda() -> Any:
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]  # torch has no types for it
