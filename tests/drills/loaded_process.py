"""A run fed by two workers of the guarded loader: ``python -m … FOLDER PAUSE_S``; says when its third batch begins."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from failsoft.errors import PreemptedError
from failsoft.training.ranks import SoloRank
from failsoft.training.survival.agreement import NoticedRanks
from failsoft.training.survival.notice import EXIT_PREEMPTED, Notice, listening
from tests.drills.troubled_job import TOTAL_BATCHES
from tests.training.loading.loaded_ranks import LoadedTask, Plan, loaded_loop


def main(folder: Path, pause_s: float) -> int:
    torch.set_num_threads(1)
    notice = Notice()
    ranks = NoticedRanks(SoloRank(), notice)
    loop, feed = loaded_loop(folder, Plan(total=TOTAL_BATCHES, workers=2, pause_s=pause_s, faults={7: "raises"}), ranks)
    loop.told = ranks.told
    assert isinstance(loop.task, LoadedTask)

    def load_samples(position: int, indices: NDArray[np.int64], *, counted: bool = True) -> int:
        if position == 2:
            print("third batch", flush=True)
        return feed.load_samples(position, indices, counted=counted)

    loop.task.load_samples = load_samples
    try:
        with listening(notice):
            loop.run()
    except PreemptedError:
        return EXIT_PREEMPTED
    finally:
        feed.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), float(sys.argv[2])))
