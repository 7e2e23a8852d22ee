"""Another number of workers on the real way of an attempt: each sample once, in the same global batches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from torch import Tensor

from failsoft.health.clock import SystemClock
from failsoft.health.ledger import read_ledger
from failsoft.training.accounting.exactness import Fate, verify
from failsoft.training.checkpoints.checkpoint import Deliver
from failsoft.training.loop import LoopPlan, Task, TrainLoop
from failsoft.training.ranks import Ranks
from failsoft.training.ray_train import RaySettings, run_attempt
from failsoft.training.survival.notice import drop_resize, withdraw_resize
from failsoft.training.survival.warmth import SparePolicy
from tests.training.toys import SAMPLES, toy_loop

BATCHES = 24
GLOBAL_BATCH = 8


@dataclass(frozen=True, kw_only=True)
class ResizedJob:
    """A picklable config."""

    folder: Path
    at: int
    """The batch in which the supervisor asks for another number of workers; -1 for never."""


@dataclass(kw_only=True)
class _Asked:
    """Stands in for a task: at one batch it asks for the resize, and works on once that was heard."""

    task: Task
    loop: TrainLoop
    job: ResizedJob
    rank: int

    def loss(self, indices: NDArray[np.int64]) -> Tensor:
        if (self.loop.state.position, self.rank) == (self.job.at, 0):
            drop_resize(self.job.folder, "planned resize")
            clock, ledger = SystemClock(), self.job.folder / "ledger.jsonl"
            while all(event.kind != "notice_heard" for event in read_ledger(ledger).events):
                clock.sleep_s(0.05)
        return self.task.loss(indices)


def build_resized(job: ResizedJob, ranks: Ranks, deliver: Deliver) -> TrainLoop:
    plan = LoopPlan(total_batches=BATCHES, seed=3, snapshot_every_steps=5, checkpoint_every_steps=100)
    loop = toy_loop(job.folder, plan=plan, ranks=ranks, deliver=deliver)
    loop = replace(loop, desk=replace(loop.desk, record_consumed=True))
    loop.task = _Asked(task=loop.task, loop=loop, job=job, rank=ranks.rank)
    return loop


def attempt(job: ResizedJob, workers: int) -> str | None:
    settings = RaySettings(
        folder=job.folder,
        ledger=job.folder / "ledger.jsonl",
        workers=workers,
        spares=SparePolicy(per_worker=0),
    )
    return run_attempt(build_resized, job, settings)


@pytest.mark.drill
@pytest.mark.usefixtures("ray_local")
@pytest.mark.filterwarnings("ignore:`use_:DeprecationWarning")  # Ray warns of its own settings
@pytest.mark.parametrize("worlds", [(1, 2), (4, 3), (3, 1)])
def test_a_planned_resize_leaves_no_sample_out_and_meets_none_twice(tmp_path: Path, worlds: tuple[int, int]) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    assert attempt(ResizedJob(folder=folder, at=1), worlds[0]) is None
    withdraw_resize(folder)
    assert attempt(ResizedJob(folder=folder, at=-1), worlds[1]) is None
    starts = [event for event in read_ledger(folder / "ledger.jsonl").events if event.kind == "run_started"]
    assert [event.data["world"] for event in starts] == list(worlds)
    assert [event.data["repeated_batches"] for event in starts] == [0, 0]
    assert 2 <= starts[1].data["position"] < BATCHES
    found = verify(folder)
    assert found.sound
    assert found.worlds == worlds
    assert [epoch.counts[Fate.ONCE] for epoch in found.epochs] == [SAMPLES] * (BATCHES * GLOBAL_BATCH // SAMPLES)
