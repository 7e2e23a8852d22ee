"""A toy run whose snapshots outlive its workers and whose disk checkpoints never come; also as ``python -m …``."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from failsoft.health.faults import FaultPlan
from failsoft.training.checkpoints.checkpoint import Deliver, deliver_here
from failsoft.training.loop import LoopPlan, TrainLoop
from failsoft.training.ranks import Ranks, ranks_here
from failsoft.training.snapshots.snapshot import SnapshotPolicy
from failsoft.training.snapshots.snapshot_place import SnapshotPlace
from tests.training.toys import toy_loop

EVERY = 10
"""Updates between two snapshots."""


@dataclass(frozen=True, kw_only=True)
class OutlivingJob:
    """A picklable config."""

    folder: Path
    memory: Path | None
    """Where snapshots outlive a worker; None: nowhere."""
    faults: FaultPlan = field(default_factory=FaultPlan)
    total_batches: int = 120
    place: SnapshotPlace = SnapshotPlace.EACH_RANK


def build_outliving(job: OutlivingJob, ranks: Ranks, deliver: Deliver) -> TrainLoop:
    plan = LoopPlan(
        total_batches=job.total_batches,
        seed=3,
        snapshot_every_steps=EVERY,
        checkpoint_every_steps=10**6,
        snapshots=SnapshotPolicy(where=job.place, host_folder=job.memory),
    )
    loop = toy_loop(job.folder, faults=job.faults, plan=plan, ranks=ranks, deliver=deliver, hidden=11)
    return replace(loop, desk=replace(loop.desk, record_consumed=True))


def main(rank: int, job: OutlivingJob, meeting: Path) -> None:
    """One of two gloo ranks."""
    torch.set_num_threads(1)
    limit = timedelta(seconds=120)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2, timeout=limit)
    build_outliving(job, ranks_here(), deliver_here).run()
    dist.destroy_process_group()


if __name__ == "__main__":
    where = SnapshotPlace(sys.argv[5])
    settings = OutlivingJob(folder=Path(sys.argv[2]), memory=Path(sys.argv[3]), total_batches=600, place=where)
    main(int(sys.argv[1]), settings, Path(sys.argv[4]))
