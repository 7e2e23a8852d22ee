"""Reads the record of consumed samples: which of it stands, given restarts and rollbacks.

Generations form a chain: each goes on from a checkpoint of an earlier one, and what came after that checkpoint's mark
is undone. Walking back from the newest generation gives the path that stands.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from failsoft.errors import ConfigError, DamagedArtifactError
from failsoft.health.json_object import json_object
from failsoft.training.accounting.consumed import (
    APPLIED,
    CONSUMED_FOLDER,
    CRC,
    FORGOTTEN_NAME,
    HEADER,
    MAGIC,
    MARKS_NAME,
    generation_of,
)
from failsoft.training.batches import GlobalBatches

_MOST_RANKS = 1_000_000
"""Each is looked for by name; a mark that says more was not left by a run."""


class Record(NamedTuple):
    """One rank's share of one batch."""

    position: int
    order: int
    applied: bool
    sample_ids: NDArray[np.int64]


class Rollback(NamedTuple):
    """Updates from position ``to`` on were undone at this place of a generation's order."""

    order: int
    to: int


@dataclass(frozen=True, kw_only=True)
class Generation:
    """One group of workers, from its beginning to its end."""

    folder: Path
    position: int
    """Where it began."""
    world: int
    total_batches: int
    batches: GlobalBatches
    saved: tuple[tuple[int, int], ...] = ()
    """Order and position of each checkpoint."""
    rollbacks: tuple[Rollback, ...] = ()

    def files(self, rank: int, span: range) -> list[Path]:
        """A rank's files that may hold positions of ``span``."""
        named = sorted(self.folder.glob(f"rank-{rank:04d}-*.bin"))
        return [path for path in named if _overlaps(path.name, span)]

    def last_position(self, rank: int) -> int:
        """The largest position on record of a rank; one less than the beginning without any."""
        everything = range(2**62)
        shares = (record.position for path in self.files(rank, everything) for record in read_records(path))
        return max(shares, default=self.position - 1)


@dataclass(frozen=True, kw_only=True)
class Reach:
    """How much of a generation stands."""

    generation: Generation
    until_order: int | None = None
    """Up to here in its order; None: all of it."""
    before: int | None = None
    """Up to this position, where no mark tells the place of the checkpoint; None: all of it."""

    def holds(self, order: int, position: int) -> bool:
        """Whether something at this place stands."""
        if self.until_order is not None:
            return order <= self.until_order
        return self.before is None or position < self.before

    def rollbacks(self) -> list[Rollback]:
        """Those that stand."""
        return [one for one in self.generation.rollbacks if self.holds(one.order, one.to)]


def read_generations(run_folder: Path) -> list[Generation]:
    """All generations on record, oldest first. One whose first mark is torn had not begun.

    Raises:
        DamagedArtifactError: a whole mark is not as a run leaves it.
    """
    folders = sorted((run_folder / CONSUMED_FOLDER).glob("generation-*"), key=generation_of)
    found = [_generation(folder) for folder in folders]
    return [generation for generation in found if generation is not None]


def standing(generations: Sequence[Generation]) -> list[Reach]:
    """The path that leads to the newest generation's state, oldest first."""
    path: list[Reach] = []
    index = len(generations) - 1
    reach = Reach(generation=generations[index]) if generations else None
    while reach is not None:
        path.append(reach)
        index, reach = _parent(generations, index)
    return path[::-1]


def forgotten(run_folder: Path, reach: Reach, span: range) -> bool:
    """Whether records of these positions were dropped: the record grew too large, or the disk refused."""
    lines = _json_lines(run_folder / CONSUMED_FOLDER / FORGOTTEN_NAME)
    names = [str(line.get("file", "")).rpartition("/") for line in lines]
    of_it = [name for folder, _, name in names if folder == reach.generation.folder.name]
    return any(_overlaps(name, span) for name in of_it) or _broke_off(reach, span)


def _broke_off(reach: Reach, span: range) -> bool:
    """Whether the record ends in the span, before the place where the next generation went on.

    No mark says then that this place was ever reached, though each is left before its state is kept: the disk refused
    marks and records alike, and the word of it, too.
    """
    if reach.before is None:
        return False
    recorded = min(reach.generation.last_position(rank) for rank in range(reach.generation.world)) + 1
    return max(recorded, span.start) < min(reach.before, span.stop)


def read_records(path: Path) -> Iterator[Record]:
    """The whole records of a file in order of writing; ends at the first that is torn."""
    body = memoryview(path.read_bytes())
    start = 0
    while start + HEADER.size <= len(body):
        magic, flags, width, count, order, position = HEADER.unpack_from(body, start)
        ids_end = start + HEADER.size + count * width
        if magic != MAGIC or width not in {4, 8} or ids_end + CRC.size > len(body):
            return
        if CRC.unpack_from(body, ids_end)[0] != zlib.crc32(body[start:ids_end]):
            return
        ids = np.frombuffer(body[start + HEADER.size : ids_end], dtype=f"<u{width}").astype(np.int64)
        yield Record(position, order, bool(flags & APPLIED), ids)
        start = ids_end + CRC.size


def is_torn(path: Path) -> bool:
    """Whether a file ends in something that is no whole record."""
    whole = sum(HEADER.size + len(record.sample_ids) * _width(record) + CRC.size for record in read_records(path))
    return whole != path.stat().st_size


def _width(record: Record) -> int:
    return 8 if len(record.sample_ids) and int(record.sample_ids.max()) >= 2**32 else 4


def _parent(generations: Sequence[Generation], index: int) -> tuple[int, Reach | None]:
    """Which earlier generation this one goes on from, and how much of it stands."""
    begin = generations[index].position
    if begin == 0 or index == 0:
        return index, None
    for earlier in range(index - 1, -1, -1):
        orders = [order for order, position in generations[earlier].saved if position == begin]
        if orders:
            return earlier, Reach(generation=generations[earlier], until_order=orders[-1])
    return index - 1, Reach(generation=generations[index - 1], before=begin)


def _generation(folder: Path) -> Generation | None:
    marks = _json_lines(folder / MARKS_NAME)
    begun = next((mark["begun"] for mark in marks if "begun" in mark), None)
    if begun is None:
        return None
    try:
        return _begun(folder, begun, marks)
    except (KeyError, TypeError, ValueError, OverflowError, ConfigError) as error:
        raise DamagedArtifactError(
            f"{folder / MARKS_NAME} is not as a run leaves it ({type(error).__name__}: {error}), so nothing can be "
            "proven from this record; see what is known of the run: failsoft runs"
        ) from error


def _begun(folder: Path, begun: dict[str, Any], marks: Sequence[dict[str, Any]]) -> Generation:
    if not 1 <= int(begun["world"]) <= _MOST_RANKS:
        raise ValueError(f"world is {begun['world']}")
    return Generation(
        folder=folder,
        position=int(begun["position"]),
        world=int(begun["world"]),
        total_batches=int(begun["total_batches"]),
        batches=GlobalBatches(
            num_samples=int(begun["num_samples"]), global_batch=int(begun["global_batch"]), seed=int(begun["seed"])
        ),
        saved=tuple((int(mark["order"]), int(mark["saved"])) for mark in marks if "saved" in mark),
        rollbacks=tuple(
            Rollback(int(mark["order"]), int(mark["rolled_back_to"])) for mark in marks if "rolled_back_to" in mark
        ),
    )


def _json_lines(path: Path) -> list[dict[str, Any]]:
    """Whole lines of a file; an absent file has none."""
    if not path.exists():
        return []
    parsed = (json_object(line) for line in path.read_bytes().splitlines())
    return [line for line in parsed if line is not None]  # the others were torn by a kill


def _overlaps(name: str, span: range) -> bool:
    """Whether a file named ``rank-RRRR-FIRST-COUNT.bin`` may hold positions of the span."""
    words = name.removesuffix(".bin").split("-")
    if len(words) != 4 or not (words[2].isdigit() and words[3].isdigit()):
        return False
    first, count = int(words[2]), int(words[3])
    return max(first, span.start) < min(first + count, span.stop)
