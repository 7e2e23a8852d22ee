"""Dead batches that shall be trained on after all: an append-only list in the run's folder.

The run trains entry ``n`` as position ``total_batches + n``, after its planned batches; a finished run that is started
again under the same name goes on with them. So every sample still counts at most once, and a run that is killed in
between goes on at the exact entry.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeGuard

from failsoft.errors import ConfigError
from failsoft.health.json_object import is_count, is_finite, json_object
from failsoft.health.ledger_files import append_line
from failsoft.training.letters.letter import DeadLetter
from failsoft.training.letters.letterbook import LETTERS_FOLDER, LetterBook, read_letter_book

REQUEUE_NAME = "requeue.jsonl"


@dataclass(frozen=True, kw_only=True)
class RequeueEntry:
    """One batch, to be trained on once more."""

    position_of_letter: int
    """Where the run refused or undid it."""
    sample_indices: tuple[int, ...]
    """What is trained on: the whole global batch in its order, without what is left out. Never empty."""
    without: tuple[int, ...] = ()
    """Samples of the batch that are left out; they count as skipped."""
    why: str = ""
    at_s: float = 0.0
    """Wall time."""


def read_requeue(run_folder: Path) -> tuple[RequeueEntry, ...]:
    """All entries in order; an absent file holds none. Torn lines are passed over: they never were entries."""
    path = run_folder / REQUEUE_NAME
    if not path.exists():
        return ()
    parsed = (_parse(line) for line in path.read_bytes().splitlines())
    return tuple(entry for entry in parsed if entry is not None)


def append_requeue(
    run_folder: Path,
    position: int,
    *,
    at_s: float,
    without: Sequence[int] = (),
    why: str = "",
    global_indices: Sequence[int] | None = None,
) -> RequeueEntry:
    """Put a dead batch on the list.

    Args:
        run_folder: the run's folder, with its dead letters.
        position: of the dead batch.
        at_s: wall time.
        without: sample ids to leave out, for instance those that a replay blamed.
        why: for the record.
        global_indices: the samples of the whole batch in order, from whoever knows the run's sample order; None puts
            the ranks' letters together again.

    Raises:
        ConfigError: no letter is of this position, the batch was trained on after a restart, it is on the list already,
            a sample to leave out is not in it, none would be left, or its letters don't hold all of it.
        OSError: the disk refused; the list is as it was.
    """
    with _alone(run_folder):
        letters = _standing_letters(run_folder, position)
        _refuse_double(run_folder, position)
        whole = _whole_batch(letters) if global_indices is None else tuple(map(int, global_indices))
        left_out = tuple(dict.fromkeys(map(int, without)))
        entry = RequeueEntry(
            position_of_letter=position,
            sample_indices=_left(whole, left_out, position),
            without=left_out,
            why=why,
            at_s=at_s,
        )
        append_line(run_folder / REQUEUE_NAME, json.dumps(asdict(entry), separators=(",", ":")).encode() + b"\n")
        return entry


def _standing_letters(run_folder: Path, position: int) -> tuple[DeadLetter, ...]:
    book: LetterBook = read_letter_book(run_folder / LETTERS_FOLDER)
    if book.at(position):
        return book.at(position)
    book.of_batch(position)  # raises when there is no such letter at all
    raise ConfigError(
        f"position {position} was met again after a restart and not refused again, so it is (or will be) trained on; "
        "there is nothing to requeue. See: failsoft dlq ls"
    )


def _refuse_double(run_folder: Path, position: int) -> None:
    for number, entry in enumerate(read_requeue(run_folder)):
        if entry.position_of_letter == position:
            raise ConfigError(
                f"position {position} is on the list already, as entry {number}; start the run again under its name to "
                "train on it"
            )


def _whole_batch(letters: Sequence[DeadLetter]) -> tuple[int, ...]:
    """The global batch again: ranks hold every ``world``-th sample of it."""
    position, world = letters[0].position, letters[0].world
    shares = {letter.rank: letter.sample_ids for letter in letters}
    absent = sorted(set(range(world)) - shares.keys())
    cut = [letter.rank for letter in letters if len(letter.sample_ids) < (letter.sample_count or 0)]
    if absent or cut:
        raise ConfigError(
            f"the letters of position {position} don't hold the whole batch (absent ranks: {absent or 'none'}, cut "
            f"short: {cut or 'none'}); give global_indices, the run's GlobalBatches.global_indices({position})"
        )
    longest = max(len(share) for share in shares.values())
    places = ((rank, place) for place in range(longest) for rank in range(world))
    return tuple(shares[rank][place] for rank, place in places if place < len(shares[rank]))


def _left(whole: Sequence[int], without: Sequence[int], position: int) -> tuple[int, ...]:
    if not whole:
        raise ConfigError(
            f"the letters of position {position} name no samples, so there is nothing to train on; give the guard the "
            "ids of each batch (sample_ids)"
        )
    foreign = [sample for sample in without if sample not in whole]
    if foreign:
        raise ConfigError(
            f"samples {foreign[:8]} are not in the batch at position {position}; see: failsoft dlq show {position}"
        )
    left = tuple(sample for sample in whole if sample not in without)
    if not left:
        raise ConfigError(
            f"without these {len(without)} samples nothing is left of the batch at position {position}; leave it dead, "
            "or leave out fewer"
        )
    return left


@contextmanager
def _alone(run_folder: Path) -> Iterator[None]:
    """One writer at a time: two hands that requeue the same batch at once must not both find it free."""
    run_folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(run_folder / f".{REQUEUE_NAME}.lock", os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _parse(line: bytes) -> RequeueEntry | None:
    record = json_object(line) or {}
    indices, without, at_s = record.get("sample_indices"), record.get("without"), record.get("at_s")
    position, why = record.get("position_of_letter"), record.get("why")
    if not (is_count(position) and _are_samples(indices) and indices and _are_samples(without) and is_finite(at_s)):
        return None
    return RequeueEntry(
        position_of_letter=position,
        sample_indices=tuple(indices),
        without=tuple(without),
        why=str(why),
        at_s=at_s,
    )


def _are_samples(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(map(is_count, value))
