"""Dead letters of single samples: which, where from, what was wrong. JSON lines beside those of batches.

One file per rank, ``samples-rank-0000.jsonl``, two generations of at most ``max_file_bytes`` each. A sample that is bad
in each epoch leaves a letter in each; readers count them. Free of torch's device code, so that they are listed at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from failsoft.health.clock import Clock
from failsoft.health.json_object import is_count, json_object
from failsoft.training.letters.generations import append_turning_over, lines_of, newer_of
from failsoft.training.letters.letter_lines import is_text, is_time
from failsoft.training.loading.bad import BadKind, BadSample

SAMPLES_PATTERN = "samples-rank-*.jsonl"
_FITS: Mapping[str, Callable[[Any], bool]] = {
    "index": is_count,
    "source": is_text,
    "why": is_text,
    "position": is_count,
    "rank": is_count,
    "synthetic": lambda value: isinstance(value, bool),
    "at_s": is_time,
}


@dataclass(frozen=True, kw_only=True)
class SampleLetter:
    """One sample that was left out once."""

    index: int
    source: str
    kind: BadKind
    why: str
    position: int
    """The batch that it was left out of."""
    rank: int
    synthetic: bool
    """A synthetic sample stood in its place; nothing is said against it."""
    at_s: float
    """Wall time."""


class SampleLetters:
    """Writes one rank's letters. A disk that refuses costs the letter; :attr:`lost` counts."""

    def __init__(self, folder: Path, *, rank: int, clock: Clock, max_file_bytes: int = 32 * 1024 * 1024) -> None:
        self.path = folder / f"samples-rank-{rank:04d}.jsonl"
        self.lost = 0
        self._rank = rank
        self._clock = clock
        self._max_file_bytes = max_file_bytes

    def write(self, position: int, bad: Iterable[BadSample], *, synthetic: bool = False) -> None:
        """A letter for each of these samples of one batch."""
        at_s = self._clock.wall_s()
        for sample in bad:
            about = {"position": position, "rank": self._rank, "synthetic": synthetic, "at_s": at_s}
            self._append(json.dumps(asdict(sample) | about, separators=(",", ":")).encode() + b"\n")

    def _append(self, line: bytes) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            append_turning_over(self.path, line, max_bytes=self._max_file_bytes)
        except OSError:
            self.lost += 1


def read_sample_letters(folder: Path) -> tuple[SampleLetter, ...]:
    """All letters of single samples below a run's dead letters, by rank, oldest first; torn lines are passed over."""
    files = sorted({newer_of(path) for path in folder.glob(SAMPLES_PATTERN)})
    lines = (line for path in files for line in lines_of(path))
    return tuple(letter for letter in map(_parsed, lines) if letter is not None)


def _parsed(line: bytes) -> SampleLetter | None:
    record = json_object(line)
    try:
        if record is None or not all(fits(record[name]) for name, fits in _FITS.items()):
            return None
        return SampleLetter(**(record | {"kind": BadKind(record["kind"])}))
    except (TypeError, ValueError, KeyError):
        return None
