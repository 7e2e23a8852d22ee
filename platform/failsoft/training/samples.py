"""How many samples a run met, and how many of them were left out one by one: by people, or by the task itself."""

from __future__ import annotations

from typing import Protocol, TypedDict, runtime_checkable

import torch

from failsoft.training.ranks import Ranks


@runtime_checkable
class Skips(Protocol):
    """A task that may leave samples of a batch out of its loss, say because they can't be decoded. Optional."""

    def take_skipped(self) -> int:
        """Samples left out on this rank since the last asking; the count starts anew."""
        ...


class Seen(TypedDict):
    """Over all ranks, since the last count."""

    samples: int
    skipped: int


class SampleCount:
    """Adds up between two snapshots, so that ranks agree once in a hundred steps and not in each."""

    def __init__(self, task: object, ranks: Ranks) -> None:
        self._task = task if isinstance(task, Skips) else None
        self._ranks = ranks
        self._samples = 0
        self._left_out = 0

    def met(self, samples: int, *, left_out: int) -> None:
        """One batch over all ranks: ``samples`` that were trained on, and those that people left out of it."""
        self._samples += samples + left_out
        self._left_out += left_out

    def settled(self) -> Seen:
        """The count since last time, and a new start. All ranks call it together; a sum where the task may skip."""
        skipped = self._left_out
        if self._task is not None:
            here = torch.tensor([float(self._task.take_skipped())], dtype=torch.float64)
            skipped += round(self._ranks.sum_(here).item())
        seen = Seen(samples=self._samples, skipped=min(skipped, self._samples))
        self._samples = self._left_out = 0
        return seen

    def forget(self) -> None:
        """The stretch since the last count is undone; what was skipped in it, too."""
        if self._task is not None:
            self._task.take_skipped()
        self._samples = self._left_out = 0
