"""One of three gloo ranks on which memory runs out at random: ``python -m … RANK FOLDER SEEDS``; a JSON line a seed."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from failsoft.health.faults import Fault, FaultMoment
from failsoft.training.degradation import Degradations
from failsoft.training.guard import GuardPolicy, StepGuard
from failsoft.training.memory.batch import Batch
from failsoft.training.memory.net import MemoryNet
from failsoft.training.memory.rungs import MemoryPolicy
from failsoft.training.ranks import ranks_here
from tests.training.memory.memory_ranks import SAMPLES, Trial, batches, fault, loss_of, network

WORLD, POSITIONS = 3, 30
PATIENCE = timedelta(seconds=120)
"""A collective that a rank left alone ends then, in an error."""
Hook = Callable[[DistributedDataParallel], object]
HOOKS: dict[str, Hook] = {
    "": lambda _wrapped: None,
    "allreduce": lambda wrapped: wrapped.register_comm_hook(None, allreduce_hook),
}


def plan_of(seed: int) -> tuple[Trial, str, list[Fault]]:
    """How DDP is set up, and where memory runs out; the same on all ranks. A piece of one sample always fits."""
    chance = random.Random(seed)
    hook = chance.choice(list(HOOKS))
    flags: dict[str, Any] = {name: chance.random() < 0.5 for name in ("unused", "views", "buffers")}
    faults = [
        fault(position, rank, chance.choice(list(FaultMoment)), above=chance.randint(1, 4))
        for position in range(POSITIONS)
        for rank in range(WORLD)
        if chance.random() < 0.12
    ]
    return Trial(faults=tuple(faults), **flags), hook, faults


def ended(seed: int, *, faults: bool) -> dict[str, Any]:
    """The run of one seed, in trouble or not."""
    trial, hook, planned = plan_of(seed)
    model, ranks, moves = network(trial), ranks_here(), list[str]()
    wrapped = DistributedDataParallel(
        model, bucket_cap_mb=0.0005, find_unused_parameters=trial.unused, gradient_as_bucket_view=trial.views
    )
    HOOKS[hook](wrapped)
    guard = StepGuard(
        model=wrapped,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.05),
        ranks=ranks,
        policy=GuardPolicy(max_grad_norm=None),
    )
    say: Callable[..., object] = lambda kind, _why, **_data: moves.append(kind)  # noqa: E731 -- handed in as it is
    policy = MemoryPolicy(climb_after_steps=3, max_climb_after_steps=6)
    net = MemoryNet(guard=guard, policy=policy, task=None, global_batch=SAMPLES, degradations=Degradations(say))
    net.begin()
    applied = 0
    for position in range(POSITIONS):
        mine = [one for one in planned if faults and (one.position, one.rank) == (position, ranks.rank)]
        whole = batches()[position % len(batches())]
        applied += net.step(Batch(position=position, whole=whole, loss=partial(loss_of, wrapped, mine))).applied
    return {"seed": seed, "hook": hook, "applied": applied, "moves": len(moves), "weights": weights_of(model)}


def weights_of(model: nn.Module) -> list[float]:
    """All of them."""
    return [value for parameter in model.parameters() for value in parameter.flatten().tolist()]


def main(rank: int, folder: Path, seeds: list[int]) -> None:
    """Each seed in trouble and without."""
    torch.set_num_threads(1)
    meeting = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=WORLD, timeout=PATIENCE)
    for seed in seeds:
        for faults in (False, True):
            print(json.dumps({"faults": faults} | ended(seed, faults=faults)), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3]))
