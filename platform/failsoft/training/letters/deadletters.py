"""Dead letters: every batch that training refused or undid, so that people can look at the data later.

One JSON-lines file per rank (an append of one line is whole on any file system then), two generations of at most
``max_file_bytes`` each: the oldest letters go first. A batch that is met again after a restart leaves a second
letter; readers keep the last one for each rank and position (:mod:`failsoft.training.letters.letterbook`). Free of
torch, so that letters can be listed at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from failsoft.errors import ConfigError
from failsoft.training.letters.generations import append_turning_over
from failsoft.training.letters.letter import MAX_IDS, UNDONE, Circumstances, DeadLetter, letter_of, undone_letter
from failsoft.training.letters.letter_lines import RESUMED_AT
from failsoft.training.letters.letterbook import LETTERS_FOLDER, read_dead_letters

__all__ = [
    "LETTERS_FOLDER",
    "UNDONE",
    "Circumstances",
    "DeadLetter",
    "DeadLetters",
    "LetterPolicy",
    "letter_of",
    "read_dead_letters",
    "undone_letter",
]


@dataclass(frozen=True, kw_only=True)
class LetterPolicy:
    """How much is kept of a dead batch, and how much that may cost."""

    max_file_bytes: int = 32 * 1024 * 1024
    """Of each of the two generations of a rank's file."""
    max_digest_bytes: int = 8 * 1024**3
    """A model larger than this is not digested (about 1 s per GiB, on the refused path only); 0 never digests. Without
    the digest a replay can't prove that it reached the state that the batch met."""
    keep_generators: bool = True
    """Keep torch's generators (3.5 kB a letter), so that a replay draws the same dropout."""
    max_payloads: int = 0
    """Keep the raw input tensors of so many batches per rank, the newest; 0 keeps none."""
    max_payload_bytes: int = 256 * 1024 * 1024
    """The payloads of a rank take no more than this together; a larger batch is not kept."""

    def __post_init__(self) -> None:
        """Refuse sizes that hold nothing."""
        if self.max_file_bytes < 1024:
            raise ConfigError(f"max_file_bytes is {self.max_file_bytes}; a dead letter file needs at least 1024")
        for name in ("max_digest_bytes", "max_payloads", "max_payload_bytes"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; use 0 to keep none, or a positive number")


class DeadLetters:
    """Writes one rank's letters. A disk that refuses costs the letter, never the training."""

    def __init__(
        self,
        folder: Path,
        *,
        rank: int,
        policy: LetterPolicy | None = None,
        on_lost: Callable[[str], object] = lambda _why: None,
    ) -> None:
        self.policy = policy or LetterPolicy()
        self.path = folder / f"rank-{rank:04d}.jsonl"
        self.lost = 0
        """Letters that the disk refused."""
        self._on_lost = on_lost

    def write(self, letter: DeadLetter) -> bool:
        """Append one letter, turning the file over when it is full; returns whether it is on disk.

        The first letter that the disk refuses is told to ``on_lost``; all are counted.
        """
        return self._append(asdict(letter) | {"sample_ids": list(letter.sample_ids[:MAX_IDS])})

    def resumed(self, position: int, *, at_s: float) -> None:
        """The run goes on from ``position``: letters of later positions are of a past that a restart undid."""
        if any(self.path.parent.glob("rank-*.jsonl")):
            self._append({RESUMED_AT: position, "at_s": at_s})

    def _append(self, record: Mapping[str, Any]) -> bool:
        line = json.dumps(record, separators=(",", ":")).encode() + b"\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            append_turning_over(self.path, line, max_bytes=self.policy.max_file_bytes)
        except OSError as error:
            self.lost += 1
            if self.lost == 1:
                self._on_lost(f"{error}; some dead letters are not written down, training goes on")
            return False
        return True
