"""A record of what a run really consumed, to prove afterwards that no sample was lost and none was seen twice.

Written beside the training, behind a flag, in ``<run>/consumed/generation-000001`` and so on: one folder for each group
of workers that began. In it, ``marks.jsonl`` is rank 0's: where the generation began and how the data is cut, each
checkpoint before it is written, each rollback. ``rank-0000-000000000000-10000.bin`` is a rank's own: the ids of each
batch it worked on and whether they were applied, in files of ``block_positions`` positions. The oldest go when a
rank's files are larger than ``max_bytes``; ``forgotten.jsonl`` names them, and what the disk refused. Each record is
one write; a torn one at the end of a file is passed over.

A record: a header (little endian: magic, flags, bytes of an id, number of ids, place in the generation's order,
position), the ids, a CRC-32 of both. The place (``order``) puts records and marks of a generation into one order, the
same on all ranks, because all ranks do the same things in the same order.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from failsoft.errors import ConfigError
from failsoft.health.ledger_files import append_line
from failsoft.training.batches import GlobalBatches

if TYPE_CHECKING:
    from failsoft.training.ranks import Ranks  # loads torch, which readers of the record need not wait for

CONSUMED_FOLDER = "consumed"
MARKS_NAME = "marks.jsonl"
FORGOTTEN_NAME = "forgotten.jsonl"
HEADER = struct.Struct("<2sBBIQQ")
MAGIC = b"fc"
CRC = struct.Struct("<I")
APPLIED = 1


@dataclass(frozen=True, kw_only=True)
class ConsumedPolicy:
    """How much of the record is kept."""

    block_positions: int = 10_000
    """Positions in one file."""
    max_bytes: int = 1024**3
    """Of all files of one rank; beyond it the oldest go, and their epochs can't be judged any more."""

    def __post_init__(self) -> None:
        """Refuse a record that holds nothing."""
        if self.block_positions < 1:
            raise ConfigError(f"block_positions is {self.block_positions}; use 1 or more")
        if self.max_bytes < 1024:
            raise ConfigError(f"max_bytes is {self.max_bytes}; a record needs at least 1024")


class ConsumedRecord:
    """One rank's pen. A disk that refuses ends the record, never the training."""

    def __init__(
        self,
        run_folder: Path,
        ranks: Ranks,
        *,
        policy: ConsumedPolicy | None = None,
        on_lost: Callable[[str], object] = lambda _why: None,
    ) -> None:
        self._root = run_folder / CONSUMED_FOLDER
        self._ranks = ranks
        self._policy = policy or ConsumedPolicy()
        self._on_lost = on_lost
        self._folder: Path | None = None
        self._order = 0
        self._block = -1
        self._handle = -1

    def begin(self, *, position: int, batches: GlobalBatches, total_batches: int) -> None:
        """A group of workers goes on from ``position``; all ranks call it together, once.

        Args:
            position: global batches consumed so far.
            batches: how the data is cut.
            total_batches: planned ones; positions from here on are requeued batches.
        """
        name = ""
        if self._ranks.rank == 0:
            begun = {"position": position, "world": self._ranks.world, "total_batches": total_batches}
            name = self._new_generation(begun | asdict(batches))
        name = self._ranks.gather(name)[0]
        self._folder = self._root / name if name else None

    def batch(self, position: int, sample_ids: Sequence[int], *, applied: bool) -> None:
        """This rank's share of a batch was worked on; called before anything else follows from it."""
        self._order += 1
        if self._folder is not None:
            self._guarded(position, lambda: self._write(position, sample_ids, applied=applied))

    def saved(self, position: int) -> None:
        """The state at ``position`` is about to be written as a checkpoint; the record before it is made durable."""
        if self._handle >= 0:
            self._guarded(position, lambda: os.fsync(self._handle))
        self._mark(position, {"saved": position})

    def kept(self, position: int) -> None:
        """The state at ``position`` was kept in memory, which may outlive the worker: a restart may begin there."""
        self._mark(position, {"saved": position})

    def rolled_back(self, *, at: int, to: int) -> None:
        """Updates of batches from position ``to`` on are undone; the run stood at ``at``."""
        self._mark(to, {"rolled_back_to": to, "at": at})

    def close(self) -> None:
        """Nothing more comes."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def _new_generation(self, begun: dict[str, Any]) -> str:
        """Make the next folder; empty when the disk refuses."""
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            last = max((generation_of(path) for path in self._root.glob("generation-*")), default=0)
            folder = self._root / f"generation-{last + 1:06d}"
            folder.mkdir()
            append_line(folder / MARKS_NAME, _line({"begun": begun}))
        except OSError as error:
            self._on_lost(f"{error}; what is consumed from here on is not recorded, training goes on")
            return ""
        return folder.name

    def _mark(self, position: int, mark: dict[str, Any]) -> None:
        self._order += 1
        folder, order = self._folder, self._order
        if folder is not None and self._ranks.rank == 0:
            self._guarded(position, lambda: append_line(folder / MARKS_NAME, _line(mark | {"order": order})))

    def _write(self, position: int, sample_ids: Sequence[int], *, applied: bool) -> None:
        record = encoded(position, sample_ids, order=self._order, applied=applied)
        block = position // self._policy.block_positions
        if block != self._block:
            self._turn_over(block)
        if os.write(self._handle, record) != len(record):
            raise OSError(f"{self._folder} took only a part of a record")

    def _turn_over(self, block: int) -> None:
        if self._handle >= 0:
            os.fsync(self._handle)  # the next checkpoint makes only the file that is open then durable
        self.close()
        first = block * self._policy.block_positions
        name = self._name(first, self._policy.block_positions)
        path = (self._folder or self._root) / name
        self._handle = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
        self._block = block
        files = sorted(self._root.glob(f"generation-*/rank-{self._ranks.rank:04d}-*.bin"))
        sizes = [file.stat().st_size for file in files]
        while files and sum(sizes) > self._policy.max_bytes and files[0] != path:
            oldest = files.pop(0)
            self._forget(oldest)
            oldest.unlink()
            sizes.pop(0)

    def _name(self, first: int, count: int) -> str:
        return f"rank-{self._ranks.rank:04d}-{first:012d}-{count}.bin"

    def _forget(self, file: Path) -> None:
        append_line(self._root / FORGOTTEN_NAME, _line({"file": f"{file.parent.name}/{file.name}"}))

    def _guarded(self, position: int, write: Callable[[], object]) -> None:
        try:
            write()
        except OSError as error:
            self.close()
            with suppress(OSError):  # there may be room for one more line; else the ledger alone tells
                self._forget((self._folder or self._root) / self._name(position, 2**62))
            self._folder = None
            self._on_lost(f"{error}; what is consumed from here on is not recorded, training goes on")


def encoded(position: int, sample_ids: Sequence[int], *, order: int, applied: bool) -> bytes:
    """One record; ids take 4 bytes each while they fit."""
    wide = any(sample >= 2**32 for sample in sample_ids)
    ids = np.asarray(sample_ids, dtype="<u8" if wide else "<u4").tobytes()
    header = HEADER.pack(MAGIC, APPLIED if applied else 0, 8 if wide else 4, len(sample_ids), order, position)
    return header + ids + CRC.pack(zlib.crc32(header + ids))


def generation_of(folder: Path) -> int:
    """Number of a generation's folder; 0 for a name that is none."""
    digits = folder.name.removeprefix("generation-")
    return int(digits) if digits.isdigit() else 0


def _line(record: dict[str, Any]) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"
