"""The toy run on a disk that slows down and hangs, its checkpoints written behind: ``python -m … FOLDER DIAL``.

Turns the dial itself at some batches; says for each how long it took, as JSON.
"""

from __future__ import annotations

import json
import mmap
import struct
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from failsoft.health.aside import Aside
from failsoft.health.clock import SystemClock
from failsoft.health.ledger import Ledger, Side
from failsoft.training.loop import LoopPlan
from tests.training.toys import ToyTask, toy_loop, written_behind

STEP_S = 0.02
PHASES = {"quick": 0, "slow": 300, "slower": 2000, "hangs": -1, "quick again": 0}
"""What the dial is turned to, in ms; each for so many batches."""
EACH = 150


class PacedTask(ToyTask):
    """Steps of a known length."""

    def __init__(self, model: torch.nn.Module, dial: mmap.mmap) -> None:
        super().__init__(model)
        self.dial = dial
        self.began_s: list[float] = []

    def loss(self, indices: NDArray[np.int64]) -> Tensor:
        if len(self.began_s) % EACH == 0:
            ms = list(PHASES.values())[min(len(self.began_s) // EACH, len(PHASES) - 1)]
            self.dial[:4] = struct.pack("i", ms)
        self.began_s.append(time.monotonic())
        time.sleep(STEP_S)
        return super().loss(indices)


def main(folder: Path, dial_path: Path) -> None:
    torch.set_num_threads(1)
    plan = LoopPlan(total_batches=EACH * len(PHASES), seed=3, snapshot_every_steps=5, checkpoint_every_steps=25)
    with dial_path.open("r+b") as file, mmap.mmap(file.fileno(), 4) as dial:
        loop = toy_loop(folder, plan=plan)
        clock = SystemClock()
        ledger = Ledger(folder / "ledger.jsonl", clock, side=Side.TRAINING, subject="slow", aside=Aside(clock))
        loop.checkpoints.ledger = ledger
        loop = written_behind(replace(loop, desk=replace(loop.desk, clock=clock, ledger=ledger)))
        task = PacedTask(loop.state.model, dial)
        loop.task = task
        loop.run()
        print(json.dumps(task.began_s))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
