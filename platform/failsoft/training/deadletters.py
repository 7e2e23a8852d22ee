"""Dead letters: every batch that training refused or undid, so that people can look at the data later.

One JSON-lines file per rank (an append of one line is whole on any file system then), two generations of at most
``max_file_bytes`` each: the oldest letters go first. A batch that is met again after a restart leaves a second letter;
readers keep the last one for each rank and position.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from failsoft.errors import ConfigError
from failsoft.training.guard import StepOutcome

_MAX_IDS = 4096


@dataclass(frozen=True, kw_only=True)
class DeadLetter:
    """One rank's share of a batch that left no trace in the weights."""

    position: int
    step: int
    rank: int
    reason: str
    sample_ids: tuple[int, ...]
    """At most 4096; the rest follows from the position and the run's seed."""
    loss: float | None = None
    """None when not finite (JSON has no NaN) or not known; the reason tells."""
    grad_norm: float | None = None
    bad_tensor: str | None = None
    at_s: float = 0.0
    """Wall time."""


def letter_of(outcome: StepOutcome, *, step: int, at_s: float) -> DeadLetter:
    """The letter of a refused step.

    Raises:
        ConfigError: the step was applied; such a batch is not dead.
    """
    if outcome.refusal is None:
        raise ConfigError(
            f"the step at position {outcome.position} was applied; only refused steps leave a dead letter"
        )
    return DeadLetter(
        position=outcome.position,
        step=step,
        rank=outcome.rank,
        reason=outcome.refusal,
        sample_ids=outcome.sample_ids,
        loss=_finite(outcome.loss),
        grad_norm=_finite(outcome.grad_norm),
        bad_tensor=outcome.bad_tensor,
        at_s=at_s,
    )


class DeadLetters:
    """Writes one rank's letters."""

    def __init__(self, folder: Path, *, rank: int, max_file_bytes: int = 32 * 1024 * 1024) -> None:
        if max_file_bytes < 1024:
            raise ConfigError(f"max_file_bytes is {max_file_bytes}; a dead letter file needs at least 1024")
        self.path = folder / f"rank-{rank:04d}.jsonl"
        self._max_file_bytes = max_file_bytes

    def write(self, letter: DeadLetter) -> None:
        """Append one letter, turning the file over when it is full."""
        record = asdict(letter) | {"sample_ids": list(letter.sample_ids[:_MAX_IDS])}
        line = json.dumps(record, separators=(",", ":")).encode() + b"\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists() and self.path.stat().st_size + len(line) > self._max_file_bytes:
            self.path.replace(self.path.with_suffix(".old.jsonl"))
        handle = os.open(self.path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
        try:
            os.write(handle, line)
        finally:
            os.close(handle)


def read_dead_letters(folder: Path) -> list[DeadLetter]:
    """All letters of a run by position and rank, the last one of each; torn lines are passed over."""
    letters: dict[tuple[int, int], DeadLetter] = {}
    paths = sorted(folder.glob("rank-*.jsonl"), key=lambda path: (path.name.split(".")[0], ".old." not in path.name))
    for line in (line for path in paths for line in path.read_bytes().splitlines()):
        letter = _parse(line)
        if letter is not None:
            letters[letter.position, letter.rank] = letter
    return [letters[key] for key in sorted(letters)]


def _parse(line: bytes) -> DeadLetter | None:
    try:
        record: dict[str, Any] = json.loads(line)
        return DeadLetter(**(record | {"sample_ids": tuple(record["sample_ids"])}))
    except (ValueError, KeyError, TypeError):
        return None


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
