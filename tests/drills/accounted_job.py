"""The toy run as a job on Ray, on real time and with a record of what it consumed."""

from __future__ import annotations

from dataclasses import replace

from failsoft.health.clock import SystemClock
from failsoft.health.ledger import Ledger, Side
from failsoft.training.checkpoints.checkpoint import Deliver
from failsoft.training.loop import TrainLoop
from failsoft.training.ranks import Ranks
from tests.drills.toy_job import ToyJob, build_toy


def build_accounted(job: ToyJob, ranks: Ranks, deliver: Deliver) -> TrainLoop:
    loop, clock = build_toy(job, ranks, deliver), SystemClock()
    ledger = Ledger(loop.desk.ledger.path, clock, side=Side.TRAINING, subject=job.folder.name)
    desk = replace(loop.desk, clock=clock, ledger=ledger, record_consumed=True)
    return replace(loop, desk=desk, checkpoints=replace(loop.checkpoints, ledger=ledger))
