"""Reading what the workers of the recovery benchmark left: pure, so that the judging of it can be tested."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.recovery_toy import CHECKPOINT_EVERY


@dataclass(frozen=True, kw_only=True)
class Diary:
    """One worker process, by what it wrote."""

    rank: int
    pid: int
    came_s: float
    steps: tuple[tuple[float, int], ...]
    """When each step was done, and its number."""

    @property
    def last(self) -> int:
        """Number of the last step done; 0 before the first."""
        return self.steps[-1][1] if self.steps else 0


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """From a kill to the first new step of every rank."""

    took_s: float
    began_s: float
    """From the kill until the last of the new workers had come as far as its own code."""
    repeated: int
    """Steps that were done before the kill, and had to be done again."""


def read_diary(path: Path) -> Diary | None:
    """None for one that holds no whole line yet; its last line may be half written."""
    rank, pid = (int(part) for part in path.name.split("-"))
    lines = [line.split() for line in path.read_text("utf-8").split("\n")[:-1]]
    if not lines:
        return None
    steps = tuple((float(moment), int(step)) for moment, step in lines[1:])
    return Diary(rank=rank, pid=pid, came_s=float(lines[0][0]), steps=steps)


def newest(diaries: Sequence[Diary], ranks: int) -> list[Diary]:
    """Of each rank the worker that came last; empty while a rank has none."""
    latest = {diary.rank: diary for diary in sorted(diaries, key=lambda diary: diary.came_s)}
    return [latest[rank] for rank in range(ranks)] if len(latest) == ranks else []


def judged(before: Sequence[Diary], after: Sequence[Diary], *, killed_s: float) -> Recovery | None:
    """The recovery, once each rank has a new worker that has done a step; None until then.

    Raises:
        AssertionError: the new workers did not go on from a checkpoint, or not all from the same one.
    """
    old = {diary.pid for diary in before}
    fresh = [diary for diary in after if diary.pid not in old and diary.steps]
    if len(fresh) < len(before):
        return None
    reached = max(diary.last for diary in before)
    first = {diary.steps[0][1] for diary in fresh}
    assert len(first) == 1, f"the ranks went on from different steps: {first}"
    repeated = reached - first.pop() + 1
    oldest = 2 * CHECKPOINT_EVERY  # the newest checkpoint may not have been told of yet
    assert 0 <= repeated < reached, f"began anew with step {reached - repeated + 1} after {reached} were done"
    assert repeated <= oldest, f"{repeated} steps done again; a checkpoint was due every {CHECKPOINT_EVERY}"
    return Recovery(
        took_s=max(diary.steps[0][0] for diary in fresh) - killed_s,
        began_s=max(diary.came_s for diary in fresh) - killed_s,
        repeated=repeated,
    )
