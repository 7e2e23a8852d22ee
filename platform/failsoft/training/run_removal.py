"""What a run's folder lets go of with age: dead letters, the tensors kept beside them, stacks of workers that hung.

Only of a run that no process drives, or by the driver itself before its workers start: ranks append to these files.
Checkpoints, progress, the list of requeued batches and the record of consumed samples are no matter of age.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from failsoft.artifacts.asides import HIDDEN
from failsoft.artifacts.store import write_durably
from failsoft.health.json_object import is_finite, json_object
from failsoft.training.letters.letterbook import LETTERS_FOLDER
from failsoft.training.survival.stack_files import HANGS_FOLDER

PAYLOADS_FOLDER = "payloads"
"""As :mod:`failsoft.training.letters.payloads` has it, which loads torch; a test holds both together."""


@dataclass(frozen=True, kw_only=True)
class LeftRun:
    """What went, or would go, of one run."""

    letters: int = 0
    """Of batches and of single samples, and marks of restarts."""
    payloads: int = 0
    """Files with input tensors."""
    stacks: int = 0
    """Files."""

    def __add__(self, other: LeftRun) -> LeftRun:
        """Both together."""
        return LeftRun(
            letters=self.letters + other.letters,
            payloads=self.payloads + other.payloads,
            stacks=self.stacks + other.stacks,
        )


def let_go(run_folder: Path, *, letters_s: float, stacks_s: float, dry_run: bool = False) -> LeftRun:
    """Remove what is from before a wall time; a file is replaced whole, or removed when nothing of it is left.

    Args:
        run_folder: of a run whose workers don't run.
        letters_s: moment for letters and payloads; ``-inf`` leaves them.
        stacks_s: the same for stacks.
        dry_run: only count.

    Raises:
        OSError: the disk refuses; each file is as it was, or done.
    """
    folder = run_folder / LETTERS_FOLDER
    if not dry_run:
        _remove_asides(folder)
    letters = sum(_shorten(path, letters_s, dry_run=dry_run) for path in sorted(folder.glob("*.jsonl")))
    payloads = _remove(_older(folder / PAYLOADS_FOLDER, letters_s), dry_run=dry_run)
    return LeftRun(
        letters=letters, payloads=payloads, stacks=_remove(_older(run_folder / HANGS_FOLDER, stacks_s), dry_run=dry_run)
    )


def _remove_asides(folder: Path) -> None:
    """Left by a kill in mid-write: they hold letters, and nobody reads them."""
    for aside in folder.glob(f"{HIDDEN}*.jsonl-*"):
        aside.unlink(missing_ok=True)


def _shorten(path: Path, before_s: float, *, dry_run: bool) -> int:
    lines = [line for line in path.read_bytes().split(b"\n") if line.strip()]
    left = [line for line in lines if _is_younger(line, before_s)]
    if len(left) == len(lines) or dry_run:
        return len(lines) - len(left)
    if left:
        write_durably(path, b"\n".join(left) + b"\n")
    else:
        path.unlink()
    return len(lines) - len(left)


def _is_younger(line: bytes, before_s: float) -> bool:
    """A line that is torn says not when it was written; nobody reads it, so it goes."""
    body = json_object(line)
    at_s = None if body is None else body.get("at_s")
    return at_s >= before_s if is_finite(at_s) else before_s == float("-inf")


def _older(folder: Path, before_s: float) -> Iterator[Path]:
    """By when they were written last; an empty file of stacks is one that a worker may yet need."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.is_file() and path.stat().st_size and path.stat().st_mtime < before_s:
            yield path


def _remove(paths: Iterator[Path], *, dry_run: bool) -> int:
    count = 0
    for path in paths:
        count += 1
        if not dry_run:
            path.unlink(missing_ok=True)
    return count
