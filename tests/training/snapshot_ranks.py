"""One of several gloo ranks as a process: ``python -m … RANK WORLD PLACE FOLDER``; prints what it saw as JSON.

A small DDP run takes snapshots, goes ill on its last rank, goes back, goes on, and at the end one rank has no snapshot.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from failsoft.errors import NoSnapshotError
from failsoft.training.ranks import ranks_here
from failsoft.training.snapshots.snapshot import RamSnapshots, SnapshotPolicy
from failsoft.training.snapshots.snapshot_place import SnapshotPlace
from failsoft.training.state import TrainingState, flatten
from tests.training.toys import same, toy_data, toy_model


class Run:
    """One rank's trainee."""

    def __init__(self, rank: int, place: SnapshotPlace) -> None:
        self.ranks = ranks_here()
        self.model = toy_model(hidden=11)
        self.wrapped = nn.parallel.DistributedDataParallel(self.model)
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=20)
        self.state = TrainingState(model=self.model, optimizer=optimizer, scheduler=scheduler)
        self.snapshots = RamSnapshots(self.state, ranks=self.ranks, policy=SnapshotPolicy(where=place))
        torch.manual_seed(100 + rank)  # each rank's generator is its own

    def step(self, times: int) -> None:
        """Steps whose batches and dropout differ between ranks."""
        for _ in range(times):
            rows = torch.randint(64, (8,))
            self.state.optimizer.zero_grad()
            self.wrapped(toy_data()[0][rows]).square().mean().backward()
            self.state.optimizer.step()
            if self.state.scheduler is not None:
                self.state.scheduler.step()
            self.state.position, self.state.step = self.state.position + 1, self.state.step + 1

    def copy(self) -> dict[str, Tensor]:
        """Every tensor of the state."""
        return {name: tensor.clone() for name, tensor in flatten(self.state).tensors.items()}

    def spoil(self) -> None:
        """An error of this rank's memory, in the last weight."""
        with torch.no_grad():
            list(self.model.parameters())[-1].view(-1)[-1] = torch.nan


def main(rank: int, world: int, place: SnapshotPlace, folder: Path) -> dict[str, Any]:
    torch.set_num_threads(1)
    meeting = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=world, timeout=timedelta(seconds=120))
    run = Run(rank, place)
    seen: dict[str, Any] = {}
    seen["first"] = run.snapshots.take()  # before there are moments
    run.step(3)
    seen["second"] = run.snapshots.take()
    kept, generator = run.copy(), torch.get_rng_state()
    run.step(2)
    if rank == world - 1:
        run.spoil()
    seen["ill"] = run.snapshots.take()
    run.step(1)  # the ill rank makes all others ill
    for turn in ("once", "twice"):
        mark = run.snapshots.restore()
        seen[turn] = mark.step == 3 and same(kept, run.copy()) and torch.equal(generator, torch.get_rng_state())
        run.step(2)
        seen[f"went on {turn}"] = [tensor.flatten().tolist() for tensor in run.model.parameters()]
    seen["third"] = run.snapshots.take()
    seen["held"], seen["state"] = run.snapshots.held_bytes, sum(tensor.nbytes for tensor in kept.values())
    seen["generator"] = generator.sum().item()
    seen["own"] = sum(buffer.nbytes for buffer in run.model.buffers())
    newcomer = RamSnapshots(run.state, ranks=run.ranks, policy=SnapshotPolicy(where=place))
    seen["none"] = said(newcomer.restore if rank == 0 else run.snapshots.restore)
    dist.destroy_process_group()
    return seen


def said(restore: Callable[[], object]) -> str:
    """What the error said."""
    try:
        restore()
    except NoSnapshotError as error:
        return str(error)
    return "no error"


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), int(sys.argv[2]), SnapshotPlace(sys.argv[3]), Path(sys.argv[4]))))
