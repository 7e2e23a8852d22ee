"""One of two ranks of which rank 1 stands still: ``python -m … RANK FOLDER WAY``; its watchdog ends it."""

from __future__ import annotations

import os
import re
import sys
import threading
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from failsoft.health.clock import SystemClock
from failsoft.health.ledger import Ledger, Side
from failsoft.training.ranks import ranks_here
from failsoft.training.survival.muster import muster_of
from failsoft.training.survival.watch_policy import WatchPolicy
from failsoft.training.survival.watchdog import Watchdog, WatchPost

VICTIM_S, MUSTER_S = 1.0, 4.0


def main(rank: int, folder: Path, way: str) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    meeting = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2, timeout=timedelta(seconds=120))
    clock = SystemClock()
    post = WatchPost(
        folder=folder,
        ledger=Ledger(folder / "ledger.jsonl", clock, side=Side.TRAINING, subject="run"),
        clock=clock,
        rank=rank,
    )
    limit_s = VICTIM_S if rank == 0 else 100.0  # the one that waits gives the alarm
    policy = WatchPolicy(first_step_s=limit_s, tick_s=0.1, muster_s=MUSTER_S)
    model = DistributedDataParallel(nn.Linear(2, 1)) if way == "backward" else None
    with Watchdog(post, policy) as watchdog:
        watchdog.joins(muster_of(ranks_here(), watchdog.folder, clock, nudgeable=watchdog.nudgeable))
        watchdog.begins(7)
        if rank == 1:
            stand_still(watchdog, way)
        elif model is None:
            dist.all_reduce(torch.ones(1))
        else:
            model(torch.ones(1, 2)).sum().backward()


def stand_still(watchdog: Watchdog, way: str) -> None:
    if way == "holds the interpreter":
        re.match(r"(a+)+$", "a" * 60 + "b")  # years, and the interpreter's lock is never given back
    if way == "watchdog is dead":
        watchdog.__exit__(None, None, None)
    threading.Event().wait()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
