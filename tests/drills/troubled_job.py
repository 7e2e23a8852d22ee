"""The toy run with trouble in one step of one rank, once in the life of the run."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from failsoft.health.clock import SystemClock
from failsoft.training.checkpoints.checkpoint import Deliver
from failsoft.training.loop import LoopPlan, Task, TrainLoop
from failsoft.training.ranks import Ranks
from failsoft.training.survival.watchdog import Watchdog
from tests.training.toys import toy_loop

TOTAL_BATCHES = 60


@dataclass(frozen=True, kw_only=True)
class TroubledJob:
    """A picklable config."""

    folder: Path
    position: int = 17
    """The batch in which the rank stands still; -1 for none."""
    rank: int = 1
    for_ever: bool = False
    """Hang. Else wait until the file ``go`` is there, so that a test may do something meanwhile."""
    blind: bool = False
    """Both ranks' watchdogs are dead by then."""


@dataclass(kw_only=True)
class TroubledTask:
    """Stands in for a task."""

    task: Task
    loop: TrainLoop
    job: TroubledJob
    rank: int

    def loss(self, indices: NDArray[np.int64]) -> Tensor:
        if self.job.blind and isinstance(self.loop.watch, Watchdog):
            self.loop.watch.__exit__(None, None, None)
        if (self.loop.state.position, self.rank) == (self.job.position, self.job.rank):
            self._stand_still()
        return self.task.loss(indices)

    def _stand_still(self) -> None:
        mark = self.job.folder / "in-step"
        if mark.exists():
            return
        mark.touch()
        pause = threading.Event()
        while self.job.for_ever or not (self.job.folder / "go").exists():
            pause.wait(0.05)


def build_troubled(job: TroubledJob, ranks: Ranks, deliver: Deliver) -> TrainLoop:
    job.folder.mkdir(parents=True, exist_ok=True)
    (job.folder / f"pid-{ranks.rank}").write_text(str(os.getpid()), "utf-8")
    plan = LoopPlan(total_batches=TOTAL_BATCHES, seed=3, snapshot_every_steps=5, checkpoint_every_steps=10)
    loop = toy_loop(job.folder, plan=plan, ranks=ranks, deliver=deliver, clock=SystemClock())
    loop.task = TroubledTask(task=loop.task, loop=loop, job=job, rank=ranks.rank)
    return loop
