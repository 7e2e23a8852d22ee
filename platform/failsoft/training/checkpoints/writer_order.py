"""One checkpoint to be written: what the training tells the writer, and the writing itself. Knows no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from failsoft.artifacts.digested import write_digested
from failsoft.artifacts.manifest import FileEntry
from failsoft.artifacts.store import ArtifactStore, Fill
from failsoft.errors import FailsoftError
from failsoft.health.clock import SystemClock
from failsoft.training.checkpoints.formats import SCALARS, TENSORS
from failsoft.training.checkpoints.inspection import size_bytes
from failsoft.training.checkpoints.judged import judged
from failsoft.training.checkpoints.parts import Stamps, in_words, refuse_mixed, stamps_in
from failsoft.training.checkpoints.retention import Shelved, from_plain, removable
from failsoft.training.checkpoints.shard_layout import ShardPlace
from failsoft.training.checkpoints.shard_writing import Around, Staging
from failsoft.training.checkpoints.tensor_file import Stamp
from failsoft.training.checkpoints.writer_news import Ticket


@dataclass(frozen=True, kw_only=True)
class Order:
    """What to write, and what may go afterwards."""

    root: str
    """The store's folder."""
    kind: str
    name: str
    meta: Mapping[str, Any]
    tensors_bytes: int
    """The first bytes of the memory: the tensor file as it is to be."""
    scalars_bytes: int
    """The bytes after those: ``state.json``."""
    rules: tuple[Mapping[str, Any], ...] = ()
    """Rules of keeping, as JSON."""
    shard: ShardPlace | None = None
    """Which part this writer writes; None: all of it. Rank 0's waits for the others and publishes."""

    def to_plain(self) -> dict[str, Any]:
        """Plain data that :meth:`from_plain` reads back, also after a way through JSON."""
        return asdict(self)

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Order:
        """An order from plain data."""
        shard = plain.get("shard")
        place = None if shard is None else ShardPlace.from_plain(shard)
        return cls(**(dict(plain) | {"rules": tuple(plain["rules"]), "shard": place}))

    def moment(self) -> Stamp:
        """What it is of."""
        return Stamp(position=int(self.meta["position"]), step=int(self.meta["step"]))


def order_for(
    ticket: Ticket,
    store: ArtifactStore,
    *,
    sizes: tuple[int, int],
    parent: str | None,
    rules: tuple[Mapping[str, Any], ...],
) -> Order:
    """What to write of a checkpoint.

    Args:
        ticket: what it is about.
        store: where it goes.
        sizes: bytes of the tensor file and of the small part.
        parent: name of the checkpoint before it.
        rules: of keeping, as JSON.
    """
    return Order(
        root=str(store.root),
        kind=store.kind,
        name=ticket.name,
        meta=dict(ticket.meta) | {"parent": parent},
        tensors_bytes=sizes[0],
        scalars_bytes=sizes[1],
        rules=rules,
        shard=ticket.shard,
    )


@dataclass(frozen=True, kw_only=True)
class Written:
    """A checkpoint that is whole and in its place."""

    size_bytes: int
    removed: tuple[str, ...] = field(default=())
    """Checkpoints that no rule kept."""
    unpruned: str = ""
    """Why not all of them could be removed; empty when they could."""

    @classmethod
    def heard(cls, message: Mapping[str, Any]) -> Written:
        """As the writer's process says it."""
        removed = tuple(message["removed"])
        return cls(size_bytes=int(message["bytes"]), removed=removed, unpruned=str(message["unpruned"]))

    def told(self, took_s: float) -> dict[str, Any]:
        """For the ledger."""
        data: dict[str, Any] = {"bytes": self.size_bytes, "took_s": round(took_s, 3)}
        data |= {"removed": list(self.removed)} if self.removed else {}
        return data | ({"unpruned": self.unpruned} if self.unpruned else {})


def carry_out(order: Order, memory: memoryview, store: ArtifactStore, *, around: Around | None = None) -> Written:
    """Write, publish, then remove what no rule keeps: never the other way round.

    Raises:
        OSError: the disk refused; nothing became visible, and nothing was removed.
        IncompatibleArtifactError: the memory, or the shards of other ranks, hold parts of different steps; nothing
            became visible.
        ArtifactError: another rank's shard did not come; nothing became visible.
    """
    around = around or Around(clock=SystemClock())
    begin, end = order.tensors_bytes, order.tensors_bytes + order.scalars_bytes
    tensors_file = TENSORS if order.shard is None else order.shard.file
    stamps = stamps_in(memory[:begin], memory[begin:end], tensors_file=tensors_file)
    refuse_mixed(order.meta, stamps, where=f"the memory of {order.name}")
    if order.shard is None:
        return _whole(order, memory, store, stamps, around)
    if order.shard.landing is not None:
        from failsoft.training.checkpoints.shard_uploading import uploaded  # noqa: PLC0415 -- loads pyarrow, which who shares storage needs not

        return uploaded(order, order.shard.landing, memory, around)
    staging = Staging(root=store.root, name=order.name, place=order.shard)
    if not order.shard.leads:
        return Written(size_bytes=staging.put(memory[:begin], order.moment(), around).size_bytes)
    try:
        return _bound(order, memory, store, staging, around)
    finally:
        staging.remove()


def _whole(order: Order, memory: memoryview, store: ArtifactStore, stamps: Stamps, around: Around) -> Written:
    begin, end = order.tensors_bytes, order.tensors_bytes + order.scalars_bytes
    store.sweep_orphans()  # what a writer killed in mid-write left may be what fills the disk

    def fill(folder: Path) -> Mapping[str, FileEntry]:
        return {
            TENSORS: write_digested(folder / TENSORS, memory[:begin], beat=around.beat),
            SCALARS: write_digested(folder / SCALARS, memory[begin:end], beat=around.beat),
        }

    return _published(order, store, fill, in_words(stamps))


def _bound(order: Order, memory: memoryview, store: ArtifactStore, staging: Staging, around: Around) -> Written:
    """This rank's shard, then all ranks' in one folder."""
    if (store.root / order.name).exists():  # as below; the shards of the others are gone into it and won't come again
        return _pruned(order, store, order.tensors_bytes + order.scalars_bytes)
    begin, end = order.tensors_bytes, order.tensors_bytes + order.scalars_bytes
    store.sweep_orphans()
    staging.sweep()
    staging.put(memory[:begin], order.moment(), around)
    entries = staging.awaited(order.moment(), around)

    def fill(folder: Path) -> Mapping[str, FileEntry]:
        staging.move_into(folder)
        return entries | {SCALARS: write_digested(folder / SCALARS, memory[begin:end], beat=around.beat)}

    return _published(order, store, fill, in_words(dict.fromkeys([*entries, SCALARS], order.moment())))


def _published(order: Order, store: ArtifactStore, fill: Fill, parts: Mapping[str, Any]) -> Written:
    if not (store.root / order.name).exists():  # a worker died between publishing and telling; positions never lie
        size = size_bytes(store.publish(order.name, fill, meta=dict(order.meta) | {"parts": parts}))
    else:
        size = order.tensors_bytes + order.scalars_bytes
    return _pruned(order, store, size)


def _pruned(order: Order, store: ArtifactStore, size_bytes: int) -> Written:
    removed: list[str] = []
    unpruned = _prune(order, store, removed)
    return Written(size_bytes=size_bytes, removed=tuple(removed), unpruned=unpruned)


def _prune(order: Order, store: ArtifactStore, removed: list[str]) -> str:
    """Returns why not all could be removed. The new checkpoint stands whatever happens here."""
    try:
        later = judged(store.root)
        shelf = [Shelved.of(artifact.name, artifact.manifest, later) for artifact in store.listing()]
        for name in removable(shelf, from_plain(order.rules)):
            store.remove(name)
            removed.append(name)
    except (OSError, FailsoftError) as error:
        return str(error)
    return ""
