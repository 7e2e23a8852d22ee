"""What the verdict of several ranks costs: one reduction of two numbers, beside DDP's own of all gradients."""

from __future__ import annotations

import json
import sys
import tempfile
from datetime import timedelta

import torch
import torch.distributed as dist

from failsoft.training.ranks import ProcessGroupRanks
from tests.benchmarks.measuring import Contender, Timings, interleave
from tests.rank_pair import outputs_of_two


def reduction_seconds(*, rounds: int) -> Timings:
    """Rank 0's timings of both reductions, interleaved, in two processes on this machine."""
    with tempfile.TemporaryDirectory() as folder:
        outputs = outputs_of_two("tests.benchmarks.guarded_ranks", folder, str(rounds))
    return Timings(seconds=json.loads(outputs[0]))


def main(rank: int, folder: str, rounds: int) -> None:
    """Time as one of the ranks, and print."""
    torch.set_num_threads(1)
    meeting = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2, timeout=timedelta(seconds=120))
    ranks, numbers, gradients = ProcessGroupRanks(), torch.zeros(2, dtype=torch.float64), torch.zeros(5_000_000)
    contenders = [
        Contender(name="one verdict (2 numbers)", run=lambda: ranks.sum_(numbers)),
        Contender(name="gradients of 5 M parameters", run=lambda: ranks.sum_(gradients)),
    ]
    timings = interleave(contenders, rounds=rounds, control="one verdict (2 numbers)")  # same order: same seed
    print(json.dumps(timings.seconds))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
