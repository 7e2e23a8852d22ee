"""One rank of a run whose model is in shards: ``python -m … RANK WORLD FOLDER MEETING``; leaves its end."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import torch

from tests.training.sharded_toys import PLAN, buffers, everything, group, sharded_loop

DRILL_PLAN = replace(PLAN, total_batches=90, snapshot_every_steps=5, checkpoint_every_steps=3)


def main(rank: int, world: int, folder: Path, meeting: Path) -> None:
    torch.set_num_threads(1)
    with group(meeting, rank, world):
        loop = sharded_loop(folder, plan=DRILL_PLAN)
        loop.run()
        torch.save(everything(loop.state) | buffers(loop.state), folder / f"end-{rank}.pt")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4]))
    # As Ray ends its workers: without taking Python down. FSDP2's mesh keeps gloo's threads beyond the group's end, and
    # one that lets go of its last tensor while Python goes takes the process down by SIGABRT (torch 2.13).
    os._exit(0)
