"""One of two gloo ranks as a process: ``python -m … RANK FOLDER FAULTS BATCHES``; prints what it ended with."""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from failsoft.health.faults import FaultPlan
from failsoft.training.loop import LoopPlan
from failsoft.training.ranks import ranks_here
from failsoft.training.state import model_tensors
from tests.training.toys import toy_loop


def main(rank: int, folder: Path, faults: FaultPlan, total: int) -> None:
    torch.set_num_threads(1)
    meeting = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2, timeout=timedelta(seconds=120))
    plan = LoopPlan(total_batches=total, seed=3, snapshot_every_steps=4, checkpoint_every_steps=8)
    loop = toy_loop(folder, faults=faults, plan=plan, ranks=ranks_here())
    loop.run()
    weights = {name: tensor.flatten().tolist() for name, tensor in model_tensors(loop.state.model).items()}
    print(json.dumps({"step": loop.state.step, "position": loop.state.position, "weights": weights}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), FaultPlan.from_json(sys.argv[3]), int(sys.argv[4]))
