"""One checkpoint to be written: what the training tells the writer, and the writing itself. Knows no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from failsoft.artifacts.digested import write_digested
from failsoft.artifacts.manifest import FileEntry
from failsoft.artifacts.store import ArtifactStore
from failsoft.errors import FailsoftError
from failsoft.training.checkpoints.inspection import SCALARS, TENSORS, size_bytes
from failsoft.training.checkpoints.parts import in_words, refuse_mixed, stamps_in
from failsoft.training.checkpoints.retention import Shelved, from_plain, removable


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

    def to_plain(self) -> dict[str, Any]:
        """Plain data that :meth:`from_plain` reads back, also after a way through JSON."""
        return asdict(self)

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Order:
        """An order from plain data."""
        return cls(**(dict(plain) | {"rules": tuple(plain["rules"])}))


@dataclass(frozen=True, kw_only=True)
class Written:
    """A checkpoint that is whole and in its place."""

    size_bytes: int
    removed: tuple[str, ...] = field(default=())
    """Checkpoints that no rule kept."""
    unpruned: str = ""
    """Why not all of them could be removed; empty when they could."""


def carry_out(
    order: Order, memory: memoryview, store: ArtifactStore, *, beat: Callable[[], None] = lambda: None
) -> Written:
    """Write, publish, then remove what no rule keeps: never the other way round.

    Raises:
        OSError: the disk refused; nothing became visible, and nothing was removed.
        IncompatibleArtifactError: the memory holds parts of different steps; nothing became visible.
    """
    begin, end = order.tensors_bytes, order.tensors_bytes + order.scalars_bytes
    stamps = stamps_in(memory[:begin], memory[begin:end])
    refuse_mixed(order.meta, stamps, where=f"the memory of {order.name}")
    store.sweep_orphans()  # what a writer killed in mid-write left may be what fills the disk

    def fill(folder: Path) -> Mapping[str, FileEntry]:
        return {
            TENSORS: write_digested(folder / TENSORS, memory[:begin], beat=beat),
            SCALARS: write_digested(folder / SCALARS, memory[begin:end], beat=beat),
        }

    if not (store.root / order.name).exists():  # a worker died between publishing and telling; positions never lie
        size = size_bytes(store.publish(order.name, fill, meta=dict(order.meta) | {"parts": in_words(stamps)}))
    else:
        size = order.tensors_bytes + order.scalars_bytes
    removed: list[str] = []
    unpruned = _prune(order, store, removed)
    return Written(size_bytes=size, removed=tuple(removed), unpruned=unpruned)


def _prune(order: Order, store: ArtifactStore, removed: list[str]) -> str:
    """Returns why not all could be removed. The new checkpoint stands whatever happens here."""
    try:
        shelf = [Shelved.of(artifact.name, artifact.manifest) for artifact in store.listing()]
        for name in removable(shelf, from_plain(order.rules)):
            store.remove(name)
            removed.append(name)
    except (OSError, FailsoftError) as error:
        return str(error)
    return ""
