"""One rank of a toy run that keeps a record of what it consumed: ``python -m … RANK WORLD FOLDER MEETING``."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from failsoft.training.loop import LoopPlan
from failsoft.training.ranks import ranks_here
from tests.training.toys import toy_loop

TOTAL = 600


def main(rank: int, world: int, folder: Path, meeting: Path) -> None:
    torch.set_num_threads(1)
    if world > 1:
        limit = timedelta(seconds=60)
        dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world, timeout=limit)
    plan = LoopPlan(total_batches=TOTAL, seed=3, snapshot_every_steps=5, checkpoint_every_steps=10)
    loop = toy_loop(folder, plan=plan, ranks=ranks_here())
    replace(loop, desk=replace(loop.desk, record_consumed=True)).run()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4]))
