"""The toy run as a job on Ray: what the drills of training kill."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from failsoft.health.faults import FaultPlan
from failsoft.training.checkpoint import Deliver
from failsoft.training.loop import LoopPlan, TrainLoop
from failsoft.training.ranks import Ranks
from tests.training.toys import toy_loop


@dataclass(frozen=True, kw_only=True)
class ToyJob:
    """A picklable config."""

    folder: Path
    faults: FaultPlan = field(default_factory=FaultPlan)
    total_batches: int = 60


def build_toy(job: ToyJob, ranks: Ranks, deliver: Deliver) -> TrainLoop:
    plan = LoopPlan(total_batches=job.total_batches, seed=3, snapshot_every_steps=5, checkpoint_every_steps=10)
    return toy_loop(job.folder, faults=job.faults, plan=plan, ranks=ranks, deliver=deliver)
