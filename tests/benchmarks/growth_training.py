"""What training pays as models and corpora grow: the guard, a snapshot, the order of samples."""

from __future__ import annotations

import gc
import math
import statistics
import tracemalloc

import torch

from failsoft.health.clock import SystemClock
from failsoft.training.batches import GlobalBatches
from failsoft.training.snapshots.host_memory import available_ram_bytes
from failsoft.training.snapshots.snapshot import RamSnapshots, SnapshotPolicy
from tests.benchmarks.bench_snapshot import Size as SnapshotSize
from tests.benchmarks.bench_snapshot import trained
from tests.benchmarks.growth_curve import Curve, cpu_s, curve
from tests.benchmarks.guard_pieces import OWN, PASSES, pieces
from tests.benchmarks.guarded_loops import Size

SHAPES = ((128, 12), (512, 19), (1024, 28), (2048, 24), (2048, 72))
"""Width and layers: 0.2, 5, 30, 100 and 300 million parameters."""
_WEIGHT_BYTES = 4
_TAKEN = {"guard": 4, "snapshot": 10}
"""Times the weights: weights, gradients and moments; for a snapshot two buffers of three of them beside these."""
_SHARE = 0.6
"""Of what is free: the machine is shared."""
CORPORA = tuple(10**power for power in range(3, 10))


def parameters(shape: tuple[int, int]) -> float:
    """Of a stack of linear layers with biases."""
    width, layers = shape
    return float(layers * (width * width + width))


def fits(shape: tuple[int, int], what: str) -> bool:
    """Whether it can be measured beside others on this machine; not known: no."""
    free = available_ram_bytes()
    return free is not None and _TAKEN[what] * _WEIGHT_BYTES * parameters(shape) <= _SHARE * free


def models(*, quick: bool) -> list[Curve]:
    """Guard, passes and snapshot against parameters."""
    shapes = SHAPES[:2] if quick else SHAPES
    sizes = [parameters(shape) for shape in shapes]
    guards, passes, shares, takes = [], [], [], []
    for shape in shapes:
        own_s, passes_s = _guard_s(shape) if fits(shape, "guard") else (math.nan, math.nan)
        guards.append(own_s)
        passes.append(passes_s)
        shares.append(own_s / passes_s)
        gc.collect()
        takes.append(_snapshot_s(shape) if fits(shape, "snapshot") else math.nan)
        gc.collect()
    return [
        curve("guard's own cost in a step", "parameters", sizes, guards, allowed=1.0),
        curve("forward and backward", "parameters", sizes, passes, allowed=1.0),
        curve("guard over forward and backward", "parameters", sizes, shares, allowed=0.0, unit="of a step"),
        curve("snapshot", "parameters", sizes, takes, allowed=1.0),
    ]


def _guard_s(shape: tuple[int, int]) -> tuple[float, float]:
    width, layers = shape
    large = parameters(shape) > 5e7
    timed = pieces(Size(name="", width=width, layers=layers, rounds=3, batch=32), rounds=3 if large else 7)
    own_s, passes_s = (max(statistics.median(timed.seconds[name]), 1e-9) for name in (OWN, PASSES))
    return own_s, passes_s


def _snapshot_s(shape: tuple[int, int]) -> float:
    width, layers = shape
    state = trained(SnapshotSize(name="", width=width, layers=layers, rounds=1))
    snapshots = RamSnapshots(state, policy=SnapshotPolicy(host_folder=None))
    refusal = snapshots.take() or snapshots.take()
    if refusal is not None:
        return math.nan
    clock, seconds = SystemClock(), []
    for _ in range(5):
        began_s = clock.monotonic_s()
        snapshots.take()
        seconds.append(clock.monotonic_s() - began_s)
    return min(seconds)


def cursors(*, quick: bool) -> list[Curve]:
    """The next global batch of 1,024 samples, and its memory, against the corpus; in the midst of the third epoch."""
    corpora = CORPORA[:3] if quick else CORPORA
    times, memory = [], []
    for samples in corpora:
        batches = GlobalBatches(num_samples=samples, global_batch=min(1024, samples), seed=7)
        position = 2 * batches.batches_per_epoch + batches.batches_per_epoch // 2 * (batches.batches_per_epoch > 1)
        times.append(cpu_s(lambda b=batches, p=position: b.global_indices(p), calls=50))  # type: ignore[misc]
        tracemalloc.start()
        GlobalBatches(num_samples=samples, global_batch=min(1024, samples), seed=7).global_indices(position)
        memory.append(float(tracemalloc.get_traced_memory()[1]))
        tracemalloc.stop()
    return [
        curve("next batch of 1,024", "samples of the corpus", corpora, times, allowed=0.0),
        curve("memory of the cursor", "samples of the corpus", corpora, memory, allowed=0.0, unit="bytes"),
    ]


def training_curves(*, quick: bool) -> list[Curve]:
    """All of them."""
    torch.set_num_threads(1)
    return [*models(quick=quick), *cursors(quick=quick)]
