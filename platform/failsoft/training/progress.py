"""How far a run is, in one small file that anybody may poll."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path

from failsoft.health.clock import Clock
from failsoft.health.json_object import is_count, is_finite, json_object
from failsoft.health.newest import Newest

PROGRESS_NAME = "progress.json"
MOST_SKEW_S = 60.0
"""By which the storage's clock, which dates a sign of life, may be ahead of ours."""


class Phase(StrEnum):
    """What a run is doing."""

    PREPARING = "preparing"
    TRAINING = "training"
    EVALUATING = "evaluating"
    PUBLISHING = "publishing"
    FINISHED = "finished"
    STOPPED = "stopped"


@dataclass(frozen=True, kw_only=True)
class Progress:
    """One look at a run."""

    phase: Phase = Phase.PREPARING
    attempt: int = 0
    """Groups of workers started so far; 1 is the first."""
    position: int = 0
    """Global batches consumed, of ``total``."""
    total: int = 0
    step: int = 0
    """Updates applied."""
    loss: float | None = None
    """Running mean over recent applied steps; None before the first."""
    refused: int = 0
    rollbacks: int = 0
    loss_scale: float | None = None
    """As of the newest snapshot; None: there is no scaler."""
    snapshot_s: float | None = None
    """What the newest snapshot cost; None before the first."""
    updated_at_s: float = 0.0
    """Wall time."""


class ProgressFile:
    """Replaces the file whole; at most every ``every_s`` seconds, so that a fast loop pays nothing for it.

    What a loop offers is written by a thread beside it: on storage that answers late, or hangs, steps don't wait for
    words about them.
    """

    def __init__(self, run_folder: Path, clock: Clock, *, every_s: float = 0.5) -> None:
        self._path = run_folder / PROGRESS_NAME
        self._clock = clock
        self._every_s = every_s
        self._next_s = -1.0
        self._newest = Newest(self._put)

    def offer(self, make: Callable[[], Progress]) -> None:
        """Have what ``make`` gives written, if it is time. Raises the OSError of what was offered before, if it did."""
        if self._clock.monotonic_s() >= self._next_s:
            self._newest.hand_over(self._dated(make()))

    def write(self, progress: Progress) -> None:
        """Write now. Not fsynced: after a crash of the machine the ledger and the checkpoints tell the truth."""
        body = self._dated(progress)
        self._newest.settle()
        self._put(body)

    def turn(self, phase: Phase) -> None:
        """Change the phase and keep the rest."""
        self._newest.settle()
        self.write(replace(read_progress(self._path.parent) or Progress(), phase=phase))

    def _dated(self, progress: Progress) -> str:
        self._next_s = self._clock.monotonic_s() + self._every_s
        return json.dumps(asdict(replace(progress, updated_at_s=self._clock.wall_s())))

    def _put(self, body: str) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        aside = self._path.with_suffix(".aside")
        aside.write_text(body, "utf-8")
        aside.replace(self._path)


class PositionMark:
    """The position being worked on, exact even after a SIGKILL: eight bytes in the page cache for each step."""

    def __init__(self, run_folder: Path) -> None:
        self._path = run_folder / "position"

    def read(self) -> int | None:
        """The last position that was set; None before the first."""
        try:
            return int.from_bytes(self._path.read_bytes()[:8], "little") if self._path.stat().st_size >= 8 else None
        except OSError:
            return None

    def last_set_s(self) -> float | None:
        """Wall time at which the last position was set: the last sign of life of a killed run. None before the first.

        It is the file's own time, so on shared storage it is the server's clock.
        """
        try:
            return self._path.stat().st_mtime
        except OSError:
            return None

    def last_set_by(self, now_s: float) -> float | None:
        """The same; also None where that is after ``now_s``, by more than clocks differ: then nobody knows when."""
        seen_s = self.last_set_s()
        return seen_s if seen_s is not None and seen_s <= now_s + MOST_SKEW_S else None

    @contextmanager
    def open(self) -> Iterator[Callable[[int], None]]:
        """Open the file for the time of the block; gives the function that sets the position."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self._path, os.O_CREAT | os.O_WRONLY, 0o600)
        try:
            yield lambda position: _put(handle, position)
        finally:
            os.close(handle)


def _put(handle: int, position: int) -> None:
    os.pwrite(handle, position.to_bytes(8, "little"), 0)


def read_progress(run_folder: Path) -> Progress | None:
    """The last look at a run; None when it has not begun or the file can't be read."""
    try:
        body = json_object((run_folder / PROGRESS_NAME).read_text("utf-8")) or {}
        progress = Progress(**(body | {"phase": Phase(body["phase"])}))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    counts = (progress.attempt, progress.position, progress.total, progress.step, progress.refused, progress.rollbacks)
    whole = all(map(is_count, counts)) and is_finite(progress.updated_at_s)
    if not whole:
        return None
    known = _finite(progress.loss), _finite(progress.loss_scale), _finite(progress.snapshot_s)
    return replace(progress, loss=known[0], loss_scale=known[1], snapshot_s=known[2])


def _finite(value: float | None) -> float | None:
    return value if is_finite(value) else None
