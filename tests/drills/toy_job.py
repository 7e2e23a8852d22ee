"""The toy run as a job on Ray: what the drills of training kill."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from failsoft.health.faults import FaultPlan
from failsoft.training.checkpoints.checkpoint import Deliver
from failsoft.training.loop import LoopPlan, TrainLoop
from failsoft.training.ranks import Ranks
from tests.training.toys import toy_loop, written_behind


@dataclass(frozen=True, kw_only=True)
class ToyJob:
    """A picklable config."""

    folder: Path
    faults: FaultPlan = field(default_factory=FaultPlan)
    total_batches: int = 60
    behind: bool = False
    """Write checkpoints in a process of their own."""


def build_toy(job: ToyJob, ranks: Ranks, deliver: Deliver) -> TrainLoop:
    plan = LoopPlan(total_batches=job.total_batches, seed=3, snapshot_every_steps=5, checkpoint_every_steps=10)
    loop = toy_loop(job.folder, faults=job.faults, plan=plan, ranks=ranks, deliver=deliver)
    return written_behind(loop) if job.behind else loop
