"""Whether a run saw each sample exactly once in each epoch, from its record of consumed samples.

Every sample of an epoch falls into exactly one class, the first that fits: seen *twice* or more often; seen *once*;
*dead*: in a refused batch (there is a dead letter) and not trained on since; *undone* by a rollback and not met again;
*never*: it was due, and nothing says what became of it; *not yet*: the run has not come to it. What a restart undid
does not count. A dead batch that was requeued counts for the epoch in which it died.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from failsoft.errors import ArtifactMissingError, DamagedArtifactError
from failsoft.training.accounting.consumed_history import (
    Generation,
    Reach,
    Record,
    forgotten,
    is_torn,
    read_generations,
    read_records,
    standing,
)
from failsoft.training.batches import GlobalBatches
from failsoft.training.letters.requeue import RequeueEntry, read_requeue

_EVERYTHING = range(2**62)
_MOST_EPOCHS = 1_000_000
"""Each is judged by itself."""


class Fate(StrEnum):
    """What became of a sample in an epoch."""

    TWICE = "twice"
    ONCE = "once"
    DEAD = "dead"
    UNDONE = "undone"
    NEVER = "never"
    NOT_YET = "not yet"


@dataclass(frozen=True, kw_only=True)
class EpochReport:
    """One epoch."""

    epoch: int
    counts: Mapping[Fate, int]
    """Samples by fate; they add up to the corpus."""
    odd_ids: Mapping[Fate, tuple[int, ...]]
    """The first ids of each fate but *once* and *not yet*."""
    judged: bool = True
    """False when records of it were dropped (it grew too large, or the disk refused); its counts say nothing then."""

    @property
    def sound(self) -> bool:
        """Nothing was lost and nothing repeated, as far as can be judged."""
        return not self.judged or self.counts[Fate.TWICE] == self.counts[Fate.NEVER] == 0


@dataclass(frozen=True, kw_only=True)
class Verification:
    """All epochs that a run has come to."""

    run: str
    reached: int
    """Global batches that stand on record."""
    generations: int
    """Groups of workers that began."""
    worlds: tuple[int, ...]
    """Ranks of each group whose work stands, in order."""
    repeated_batches: int
    """Batches whose record does not stand, because a restart undid it."""
    torn_files: int
    """Files that end in a torn record."""
    epochs: tuple[EpochReport, ...]

    @property
    def sound(self) -> bool:
        """Whether no epoch lost or repeated a sample, as far as can be judged."""
        return all(epoch.sound for epoch in self.epochs)

    @property
    def proven(self) -> bool:
        """Whether that is known of all epochs: of one whose record is incomplete nothing is."""
        return self.sound and all(epoch.judged for epoch in self.epochs)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self) | {"sound": self.sound, "proven": self.proven}


def verify(run_folder: Path, *, max_ids: int = 16) -> Verification:
    """Judge a run by what its ranks wrote down.

    Args:
        run_folder: the run's folder.
        max_ids: ids named for each fate of an epoch.

    Raises:
        ArtifactMissingError: the run kept no record.
        DamagedArtifactError: its record is not as a run leaves it, or says what no run can have come to.
    """
    generations = read_generations(run_folder)
    if not generations:
        raise ArtifactMissingError(
            f"{run_folder} holds no record of consumed samples; train with record_consumed=True (--record-consumed) "
            "to get one"
        )
    path = standing(generations)
    latest = generations[-1]
    reached = max(reached_by(latest), latest.position)
    planned = min(reached, latest.total_batches)
    epochs = -(-planned // latest.batches.batches_per_epoch)
    if epochs > _MOST_EPOCHS:
        raise DamagedArtifactError(
            f"{latest.folder} says that the run came to batch {reached}, which is epoch {epochs}, more than a run can "
            "have, so nothing can be proven from this record; see what is known of the run: failsoft runs"
        )
    judge = _Judge(run_folder, path, latest, reached)
    return Verification(
        run=run_folder.name,
        reached=reached,
        generations=len(generations),
        worlds=tuple(reach.generation.world for reach in path),
        repeated_batches=_undone_by_restarts(generations, path),
        torn_files=sum(is_torn(file) for one in generations for file in one.folder.glob("rank-*.bin")),
        epochs=tuple(judge.epoch(epoch, max_ids) for epoch in range(epochs)),
    )


def reached_by(generation: Generation) -> int:
    """Batches that all ranks of a group have on record.

    Ranks go in step, so a killed one lags behind by one at most. One that lags further has lost its record, and its
    samples count as never seen.
    """
    ends = [generation.last_position(rank) + 1 for rank in range(generation.world)]
    return min(ends) if min(ends) >= max(ends) - 1 else max(ends)


class _Judge:
    def __init__(self, run_folder: Path, path: Sequence[Reach], latest: Generation, reached: int) -> None:
        self._folder = run_folder
        self._path = path
        self._batches: GlobalBatches = latest.batches
        self._planned = min(reached, latest.total_batches)
        self._requeued = _requeued(path, read_requeue(run_folder), latest.total_batches, range(reached))

    def epoch(self, epoch: int, max_ids: int) -> EpochReport:
        per_epoch, samples = self._batches.batches_per_epoch, self._batches.num_samples
        span = range(epoch * per_epoch, min((epoch + 1) * per_epoch, self._planned))
        seen = np.zeros(samples, np.uint16)
        dead, undone = np.zeros(samples, bool), np.zeros(samples, bool)
        for record, stands in _records(self._path, span):
            if record.applied and stands:
                np.add.at(seen, record.sample_ids, 1)
            else:
                (undone if record.applied else dead)[record.sample_ids] = True
        for position, ids in self._requeued:
            if self._batches.epoch_of(position) == epoch:
                np.add.at(seen, ids, 1)
        fates = _fates(seen, dead, undone, self._due(span))
        return EpochReport(
            epoch=epoch,
            counts={fate: int(mask.sum()) for fate, mask in fates.items()},
            odd_ids={fate: _first(mask, max_ids) for fate, mask in fates.items() if fate not in _ORDINARY},
            judged=not self._forgot(span),
        )

    def _forgot(self, span: range) -> bool:
        """Whether records are missing that would stand: each group's, up to where the next one began."""
        ends = [reach.generation.position for reach in self._path[1:]] + [_EVERYTHING.stop]
        return any(
            forgotten(self._folder, reach, range(max(span.start, reach.generation.position), min(span.stop, end)))
            for reach, end in zip(self._path, ends, strict=True)
        )

    def _due(self, span: range) -> NDArray[np.bool_]:
        """Samples that the epoch has come to: all of them once it is over, else by the run's order."""
        if len(span) == self._batches.batches_per_epoch:
            return np.ones(self._batches.num_samples, bool)
        due = np.zeros(self._batches.num_samples, bool)
        for position in span:
            due[self._batches.global_indices(position)] = True
        return due


_ORDINARY = frozenset({Fate.ONCE, Fate.NOT_YET})


def _fates(
    seen: NDArray[np.uint16], dead: NDArray[np.bool_], undone: NDArray[np.bool_], due: NDArray[np.bool_]
) -> dict[Fate, NDArray[np.bool_]]:
    left = seen == 0
    fates = {Fate.TWICE: seen > 1, Fate.ONCE: seen == 1, Fate.DEAD: left & dead, Fate.UNDONE: left & undone & ~dead}
    left &= ~dead & ~undone
    return fates | {Fate.NEVER: left & due, Fate.NOT_YET: left & ~due}


def _records(path: Sequence[Reach], span: range) -> Iterator[tuple[Record, bool]]:
    """Records of these positions on the path, and whether no later rollback undid them."""
    for index, reach in enumerate(path):
        later = min((rollback.to for after in path[index + 1 :] for rollback in after.rollbacks()), default=None)
        rollbacks = reach.rollbacks()
        for rank in range(reach.generation.world):
            for file in reach.generation.files(rank, span):
                for record in read_records(file):
                    if record.position in span and reach.holds(record.order, record.position):
                        undone = any(one.order > record.order and one.to <= record.position for one in rollbacks)
                        yield record, not undone and (later is None or record.position < later)


def _requeued(
    path: Sequence[Reach], entries: Sequence[RequeueEntry], total_batches: int, reached: range
) -> list[tuple[int, NDArray[np.int64]]]:
    """Dead batches that were trained on after all: the position where each died, and the ids."""
    found = []
    for record, stands in _records(path, range(total_batches, max(total_batches, reached.stop))):
        entry = record.position - total_batches
        if record.applied and stands and entry < len(entries):
            found.append((_died_at(entries, entry, total_batches), record.sample_ids))
    return found


def _died_at(entries: Sequence[RequeueEntry], entry: int, total_batches: int) -> int:
    """The planned position of an entry's samples, also where they died again as an earlier entry."""
    position = entries[entry].position_of_letter
    while total_batches <= position < total_batches + entry:
        entry = position - total_batches
        position = entries[entry].position_of_letter
    return position


def _undone_by_restarts(generations: Sequence[Generation], path: Sequence[Reach]) -> int:
    reaches = {reach.generation.folder: reach for reach in path}
    count = 0
    for generation in generations:
        reach = reaches.get(generation.folder)
        files = [file for rank in range(generation.world) for file in generation.files(rank, _EVERYTHING)]
        places = {(one.order, one.position) for file in files for one in read_records(file)}
        count += sum(reach is None or not reach.holds(*place) for place in places)
    return count


def _first(mask: NDArray[np.bool_], count: int) -> tuple[int, ...]:
    return tuple(np.flatnonzero(mask)[:count].tolist())
