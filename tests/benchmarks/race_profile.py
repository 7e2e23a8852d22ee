"""Where a snapshot's time goes: ``python -m tests.benchmarks.race_profile`` takes it apart, in turns, by CPU time.

A ratio of the race says how much longer something takes than a plain copy, and not why. The pieces run over the same
state, one after the other in each round: the plain copy, the look at each number, the names of all tensors, the whole.
What a gateway spends is printed by ``request_path``; a recovery's own benchmark tells the part until workers run.
"""

from __future__ import annotations

import time

import numpy as np
import torch
from rich.console import Console

from failsoft.training.finite import all_finite
from failsoft.training.snapshots.snapshot import RamSnapshots
from failsoft.training.state import flatten
from tests.benchmarks.bench_snapshot import QUICK, SIZES, Size, memcpy_of, trained
from tests.benchmarks.measuring import Contender, interleave
from tests.benchmarks.outcome import Outcome

WHOLE, COPY, LOOK, NAMES = "take(), whole", "memcpy per tensor", "each number looked at", "names of all tensors"


def profiled(size: Size, *, rounds: int) -> Outcome:
    """The pieces of a snapshot of one size, each as a part of the plain copy."""
    torch.set_num_threads(1)
    state, outcome = trained(size), Outcome(name="snapshot_pieces")
    tensors, snapshots = flatten(state).tensors, RamSnapshots(state)
    for _ in range(2):
        assert snapshots.take() is None

    def look() -> bool:
        with np.errstate(over="ignore", invalid="ignore"):
            return all(all_finite(tensor) for tensor in tensors.values())

    pieces = {WHOLE: snapshots.take, COPY: memcpy_of(tensors), LOOK: look, NAMES: lambda: flatten(state)}
    contenders = [Contender(name=name, run=run) for name, run in pieces.items()]
    timings = interleave(contenders, rounds=rounds, control=WHOLE, now=time.process_time)
    size_mb = sum(tensor.nbytes for tensor in tensors.values()) / 1e6
    outcome.add(f"{size.name}, {size_mb:.0f} MB in {len(tensors)} tensors, CPU time", timings)
    outcome.ratios |= {f"{name} over {COPY}": timings.ratio(name, COPY) for name in (WHOLE, LOOK, NAMES)}
    return outcome


def main() -> None:
    """Of the sizes that fit a small machine."""
    console = Console()
    for size in (QUICK, *SIZES[:2]):
        for table in profiled(size, rounds=20).tables():
            console.print(table)


if __name__ == "__main__":
    main()
