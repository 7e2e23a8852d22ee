"""The toy run with its model in shards (FSDP2), at any number of gloo ranks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from enum import StrEnum
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from failsoft.artifacts.store import ArtifactStore
from failsoft.health.clock import SystemClock
from failsoft.health.faults import FaultPlan
from failsoft.health.ledger import Ledger, Side
from failsoft.training.batches import GlobalBatches
from failsoft.training.breaker import Breaker, BreakerPolicy
from failsoft.training.checkpoints.checkpoint import Checkpoints
from failsoft.training.checkpoints.writer import writer_behind
from failsoft.training.chronicle import Desk
from failsoft.training.gradients import whole
from failsoft.training.guard import StepGuard
from failsoft.training.loop import LoopPlan, TrainLoop
from failsoft.training.ranks import ranks_here
from failsoft.training.state import TrainingState
from tests.training.toys import SAMPLES, ToyTask, toy_model

PLAN = LoopPlan(total_batches=24, seed=3, snapshot_every_steps=4, checkpoint_every_steps=8)
HIDDEN = 7
"""Uneven over two ranks and over three; the last layer's one row is nothing at all on all but one."""


class Shards(StrEnum):
    """How the model is cut."""

    NONE = "none"
    OVER_ALL = "over all"
    IN_TWO_COPIES = "in two copies"
    """On a mesh of two dimensions: each half of the ranks holds a whole model in shards."""


@contextmanager
def group(folder: Path, rank: int, world: int) -> Iterator[None]:
    """A process group for the time of the block; the folder must be a new one, or its meeting is over."""
    folder.mkdir(parents=True, exist_ok=True)
    meeting = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=world, timeout=timedelta(seconds=120))
    try:
        yield
    finally:
        dist.destroy_process_group()


def sharded_model(shard: Shards = Shards.OVER_ALL) -> nn.Module:
    """Two groups of parameters, as a larger model has one for each block."""
    model = toy_model(PLAN.seed, hidden=HIDDEN)
    if shard is Shards.NONE:
        return model
    copies = 2 if shard is Shards.IN_TWO_COPIES else 1
    mesh = init_device_mesh("cpu", (copies, dist.get_world_size() // copies), mesh_dim_names=("copies", "shards"))
    for part in (model.get_submodule("0"), model):
        fully_shard(part, mesh=mesh if shard is Shards.IN_TWO_COPIES else mesh["shards"])
    return model


def sharded_loop(
    folder: Path, *, plan: LoopPlan = PLAN, faults: FaultPlan | None = None, shard: Shards = Shards.OVER_ALL
) -> TrainLoop:
    """One rank of it, in the process group that there is; every writer is a process of its own."""
    ranks, clock = ranks_here(), SystemClock()
    model = sharded_model(shard)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=20)
    breaker = Breaker(BreakerPolicy())
    state = TrainingState(model=model, optimizer=optimizer, scheduler=scheduler, breaker=breaker)
    ledger = Ledger(folder / "ledger.jsonl", clock, side=Side.TRAINING, subject=folder.name)
    store = ArtifactStore(folder / "checkpoints", clock, kind="checkpoint")
    return TrainLoop(
        state=state,
        task=ToyTask(model),
        batches=GlobalBatches(num_samples=SAMPLES, global_batch=12, seed=plan.seed),
        plan=plan,
        guard=StepGuard(model=model, optimizer=optimizer, scheduler=scheduler, ranks=ranks),
        breaker=breaker,
        checkpoints=Checkpoints(
            store=store,
            identity={"seed": plan.seed, "total_batches": plan.total_batches},
            ranks=ranks,
            ledger=ledger,
            writer=writer_behind(store, clock),
        ),
        desk=Desk(folder=folder, ledger=ledger, clock=clock, faults=faults or FaultPlan()),
    )


def everything(state: TrainingState) -> dict[str, Tensor]:
    """Weights and moments, whole; a collective. Buffers are each rank's own."""
    tensors = {f"model/{name}": whole(one.detach()).clone() for name, one in state.model.named_parameters()}
    for index, slot in state.optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer/{index}/{name}": whole(value).clone() for name, value in slot.items()}
    return tensors


def buffers(state: TrainingState) -> dict[str, Tensor]:
    """This rank's."""
    return {f"model/{name}": one.clone() for name, one in state.model.named_buffers()}


def differing(left: dict[str, Tensor], right: dict[str, Tensor]) -> list[str]:
    """Names that are not the same bit for bit."""
    names = sorted(left.keys() | right.keys())
    return [name for name in names if name not in left or name not in right or not torch.equal(left[name], right[name])]
