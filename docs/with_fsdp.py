"""A model in shards: ``torchrun --nproc-per-node 2 docs/with_fsdp.py [HOME]``. Kill it; it goes on, on any number."""

import sys
from contextlib import closing
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

from failsoft.training.checkpoints.plain_loop import checkpoints_of
from failsoft.training.guard import StepGuard
from failsoft.training.state import TrainingState

home = Path(sys.argv[1] if sys.argv[1:] else "work")
dist.init_process_group("gloo")  # "nccl" with GPUs
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1))
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
guard = StepGuard(model=model, optimizer=optimizer)
state = TrainingState(model=model, optimizer=optimizer, guard=guard)

with closing(checkpoints_of(home, "fsdp", identity={"seed": 0})) as checkpoints:
    checkpoints.restore(state, seed=0)
    began = state.position
    for position in range(state.position, 200):
        mine = torch.randn(64, 4, generator=torch.Generator().manual_seed(position)).chunk(world)[rank]
        outcome = guard.step(lambda x=mine: (model(x) - x.sum(1, keepdim=True)).square().mean(), position=position)
        state.position, state.step = position + 1, state.step + outcome.applied
        if state.position % 50 == 0:
            checkpoints.submit(state, {"loss": outcome.mean_loss})  # each rank copies its shards; the rest is behind
            checkpoints.tend(state)
            if rank == 0:
                print(f"{world} ranks, begun at {began}, are at {state.position}: loss {outcome.mean_loss:.4f}")
dist.destroy_process_group()
