"""The toy run without Ray, fed by two worker processes of a loader: ``python -m … FOLDER PAUSE_S``."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from failsoft.errors import PreemptedError
from failsoft.training.loop import LoopPlan, TrainLoop
from failsoft.training.ranks import SoloRank
from failsoft.training.survival.agreement import NoticedRanks
from failsoft.training.survival.notice import EXIT_PREEMPTED, Notice, listening, stay_through_notices
from tests.drills.troubled_job import TOTAL_BATCHES
from tests.training.toys import toy_data, toy_loop


class Rows(Dataset[tuple[Tensor, Tensor]]):
    def __init__(self, pause_s: float) -> None:
        self.inputs, self.targets = toy_data()
        self.pause_s = pause_s

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        time.sleep(self.pause_s)
        return self.inputs[index], self.targets[index]


class LoadedTask:
    """Takes what the loader brings, in the order of the run."""

    def __init__(self, loop: TrainLoop, pause_s: float) -> None:
        self.model = loop.state.model
        self.loop = loop
        self.pause_s = pause_s
        self.brought: Iterator[list[Tensor]] | None = None
        self.count = 0

    def loss(self, indices: NDArray[np.int64]) -> Tensor:
        if self.brought is None:
            self.brought = self.bring(self.loop.state.position)
        self.count += 1
        if self.count == 3:
            print("third batch", flush=True)
        inputs, targets = next(self.brought)
        assert len(inputs) == len(indices)
        return nn.functional.mse_loss(self.model(inputs), targets)

    def bring(self, first: int) -> Iterator[list[Tensor]]:
        batches = [self.loop.batches.global_indices(position).tolist() for position in range(first, TOTAL_BATCHES)]
        generator = torch.Generator()  # else each loader draws from the run's generator, and a resumed run once more
        rows = Rows(self.pause_s)
        return iter(
            DataLoader(
                rows,
                batch_sampler=batches,
                num_workers=2,
                worker_init_fn=stay_through_notices,
                generator=generator,
            )
        )


def main(folder: Path, pause_s: float) -> int:
    torch.set_num_threads(1)
    notice = Notice()
    plan = LoopPlan(total_batches=TOTAL_BATCHES, seed=3, snapshot_every_steps=5, checkpoint_every_steps=10)
    ranks = NoticedRanks(SoloRank(), notice)
    loop = toy_loop(folder, plan=plan, ranks=ranks)
    loop.task, loop.told = LoadedTask(loop, pause_s), ranks.told
    try:
        with listening(notice):
            loop.run()
    except PreemptedError:
        return EXIT_PREEMPTED
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), float(sys.argv[2])))
