"""One rank of a sharded model (FSDP2): ``python -m … RANK FOLDER WIDTH LAYERS ROUNDS``; prints JSON of its stalls.

Each round times, in a new order that both ranks draw alike, a copy of this rank's bytes and the hand-over of a sharded
checkpoint, which takes the word of both ranks; both begin together, and rest until it is published.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.optim import AdamW

from failsoft.artifacts.store import ArtifactStore
from failsoft.health.clock import SystemClock
from failsoft.health.ledger import Ledger, Side
from failsoft.training.checkpoints.checkpoint import Checkpoints
from failsoft.training.checkpoints.retention import Last
from failsoft.training.checkpoints.writer import writer_behind
from failsoft.training.ranks import ranks_here
from failsoft.training.sharding import here
from failsoft.training.state import TrainingState, flatten
from tests.benchmarks.guarded_loops import Size, network
from tests.benchmarks.measuring import CONTROL

BATCH = 8
MEMCPY, OURS = "memory copy", "failsoft, sharded"


class Rank:
    """Its shards, and the two ways to copy them."""

    def __init__(self, folder: Path, size: Size) -> None:
        model = network(size)
        fully_shard(model)
        self.state = TrainingState(model=model, optimizer=AdamW(model.parameters(), lr=1e-4))
        torch.as_tensor(model(torch.randn(BATCH, size.width))).square().mean().backward()
        self.state.optimizer.step()
        self.state.optimizer.zero_grad()
        clock, ranks = SystemClock(), ranks_here()
        store = ArtifactStore(folder / "checkpoints", clock, kind="checkpoint")
        ledger = Ledger(folder / "ledger.jsonl", clock, side=Side.TRAINING, subject="bench")
        writer = writer_behind(store, clock, rules=(Last(count=1),))
        self.checkpoints = Checkpoints(store=store, identity={}, ranks=ranks, ledger=ledger, writer=writer)
        self.checkpoints.tend(self.state)
        self.bytes = sum(here(tensor).nbytes for tensor in flatten(self.state).tensors.values())
        self.source, self.target = (np.full(self.bytes, fill, np.uint8) for fill in (1, 2))

    def memcpy(self) -> None:
        """The floor."""
        torch.from_numpy(self.target).copy_(torch.from_numpy(self.source))

    def ours(self) -> None:
        """What the loop calls when a checkpoint is due."""
        self.state.position += 1
        assert self.checkpoints.submit(self.state, {}, judged=True)

    def rest(self) -> None:
        """Until all that was handed over is published."""
        before = self.checkpoints.position
        self.checkpoints.settle()
        assert self.state.position in {0, self.checkpoints.position}, before


def stalls(rank: Rank, rounds: int) -> dict[str, list[float]]:
    """Seconds of each, by round; the first round is not counted."""
    turns: dict[str, Callable[[], None]] = {MEMCPY: rank.memcpy, MEMCPY + CONTROL: rank.memcpy, OURS: rank.ours}
    seconds: dict[str, list[float]] = {name: [] for name in turns}
    order = random.Random(7)
    for number in range(rounds + 1):
        for name in order.sample(list(turns), len(turns)):
            dist.barrier()
            started_s = time.perf_counter()
            turns[name]()
            took_s = time.perf_counter() - started_s
            rank.rest()
            if number:
                seconds[name].append(took_s)
    return seconds


def main(number: int, folder: Path, size: Size, rounds: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(3)
    meeting = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=number, world_size=2, timeout=timedelta(seconds=120))
    try:
        rank = Rank(folder, size)
        found = stalls(rank, rounds)
        rank.checkpoints.close()
        print(json.dumps({"bytes": rank.bytes, "seconds": found}), flush=True)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    at, where, width, layers, times = sys.argv[1:]
    main(int(at), Path(where), Size(name="shards", width=int(width), layers=int(layers), rounds=1), int(times))
