"""A RAM snapshot of model and AdamW state against a plain copy of the same bytes, and against what is usually written.

Ours is the whole ``take()``: names, copy, health check, generators, swap. The plain copy is memcpy through numpy into
memory that was made and touched before, one call per tensor over views made before; beside it the same bytes in one
block, which no state of a model is. Both leave out everything else that a snapshot needs.

The same ``take()`` is measured with its buffers where they outlive a worker (files in ``/dev/shm``). What follows
behind the training, the checksum and the note, is over before the next timing of anybody, and is told apart.
"""

from __future__ import annotations

import gc
import io
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from failsoft.health.clock import SystemClock
from failsoft.training.ranks import SoloRank
from failsoft.training.snapshots.refuge import Refuge
from failsoft.training.snapshots.refuge_opening import open_refuge
from failsoft.training.snapshots.snapshot import RamSnapshots, SnapshotPolicy
from failsoft.training.state import TrainingState, flatten
from tests.benchmarks.measuring import Contender, Timings, interleave
from tests.benchmarks.outcome import Outcome

OUTLIVING = "take(), outlives the worker"
OURS, MEMCPY, BLOCK = "failsoft take()", "memcpy per tensor", "memcpy, one block"
TWO_PASSES, NAIVE, SAVE = "copy_, then isfinite", "cpu().clone()", "torch.save to BytesIO"


@dataclass(frozen=True, kw_only=True)
class Size:
    """One model whose state is kept."""

    name: str
    width: int
    layers: int
    rounds: int


SIZES = (
    Size(name="5m", width=512, layers=19, rounds=60),
    Size(name="30m", width=1024, layers=28, rounds=30),
    Size(name="100m", width=2048, layers=24, rounds=9),
)
QUICK = Size(name="0.2m", width=128, layers=12, rounds=5)


def measure(*, quick: bool) -> Outcome:
    """All sizes with one and with two threads; the stated ratios take the worst of them."""
    outcome, parts = Outcome(name="snapshot"), []
    threads_before = torch.get_num_threads()
    for size in (QUICK,) if quick else SIZES:
        for threads in (1,) if quick else (1, 2):
            torch.set_num_threads(threads)
            parts.append(one(outcome, size, threads))
            gc.collect()
    torch.set_num_threads(threads_before)
    for name, pick in (
        ("stall_over_memcpy", max),
        ("outliving_stall_over_memcpy", max),
        ("outliving_over_own_memory", max),
        ("stall_over_block_memcpy", max),
        ("two_passes_over_ours", min),
        ("naive_over_ours", min),
        ("torch_save_over_ours", min),
    ):
        outcome.ratios[name] = pick((outcome.ratios[f"{name}_{part}"] for part in parts), key=lambda ratio: ratio.value)
    outcome.notes.append(
        "ratios without a size are the worst over sizes and torch threads (1 and 2); take() uses one thread; "
        "both buffers are there and touched before the first timing"
    )
    return outcome


def trained(size: Size) -> TrainingState:
    """A stack of linear layers with AdamW moments."""
    torch.manual_seed(7)
    model = nn.Sequential(
        *[part for _ in range(size.layers) for part in (nn.Linear(size.width, size.width), nn.GELU())]
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    model(torch.randn(4, size.width)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return TrainingState(model=model, optimizer=optimizer)


def one(outcome: Outcome, size: Size, threads: int) -> str:
    """Measure one size; gives the part of a name that its ratios end in."""
    state, part = trained(size), f"{size.name}_{threads}t"
    tensors = flatten(state).tensors
    snapshots = RamSnapshots(state)
    with outliving(state) as (lasting, room):
        for _ in range(2):
            assert snapshots.take() is None
            assert lasting.take() is None
        assert room.refusal is None, room.refusal
        timings = interleave(_field(size, snapshots, lasting, room, tensors), rounds=size.rounds, control=OURS)
        seal_s = [_sealing_s(lasting, room) for _ in range(5)]
    size_bytes = sum(tensor.nbytes for tensor in tensors.values())
    outcome.add(f"{size.name}, {size_bytes / 1e6:.0f} MB in {len(tensors)} tensors, {threads} thread(s)", timings)
    outcome.notes.append(f"{part}: checksum and note of a snapshot take {min(seal_s) * 1e3:.1f} ms behind the training")
    _ratios(outcome, timings, part)
    snapshots.restore()
    assert all(torch.equal(kept, flatten(state).tensors[name]) for name, kept in tensors.items())
    return part


@contextmanager
def outliving(state: TrainingState) -> Iterator[tuple[RamSnapshots, Refuge]]:
    """Snapshots in real memory of the host, and the room they lie in; gone after the block."""
    with tempfile.TemporaryDirectory(prefix="failsoft-bench-", dir="/dev/shm") as folder:
        opened = open_refuge(
            SnapshotPolicy(host_folder=Path(folder)),
            run_folder=Path(folder) / "run",
            bound="bench",
            ranks=SoloRank(),
            clock=SystemClock(),
        )
        assert opened.refuge is not None, opened.refusal
        snapshots = RamSnapshots(state)
        snapshots.room = opened.refuge
        with closing(opened.refuge):
            yield snapshots, opened.refuge


def _sealing_s(snapshots: RamSnapshots, room: Refuge) -> float:
    snapshots.take()
    began_s = time.perf_counter()
    room.settle()
    return time.perf_counter() - began_s


def _field(
    size: Size, snapshots: RamSnapshots, lasting: RamSnapshots, room: Refuge, tensors: Mapping[str, Tensor]
) -> list[Contender]:
    contenders: dict[str, Callable[[], object]] = {
        OURS: snapshots.take,
        OUTLIVING: lasting.take,
        MEMCPY: memcpy_of(tensors),
        BLOCK: _block(tensors),
        TWO_PASSES: _two_passes(tensors),
        NAIVE: lambda: {name: tensor.cpu().clone() for name, tensor in tensors.items()},
        SAVE: lambda: torch.save(tensors, io.BytesIO()),
    }
    calls = 20 if size is QUICK else 1
    return [Contender(name=name, run=run, calls=calls, before=room.settle) for name, run in contenders.items()]


def _ratios(outcome: Outcome, timings: Timings, part: str) -> None:
    outcome.ratios[f"stall_over_memcpy_{part}"] = timings.ratio(OURS, MEMCPY)
    outcome.ratios[f"outliving_stall_over_memcpy_{part}"] = timings.ratio(OUTLIVING, MEMCPY)
    outcome.ratios[f"outliving_over_own_memory_{part}"] = timings.ratio(OUTLIVING, OURS)
    outcome.ratios[f"stall_over_block_memcpy_{part}"] = timings.ratio(OURS, BLOCK)
    outcome.ratios[f"two_passes_over_ours_{part}"] = timings.ratio(TWO_PASSES, OURS)
    outcome.ratios[f"naive_over_ours_{part}"] = timings.ratio(NAIVE, OURS)
    outcome.ratios[f"torch_save_over_ours_{part}"] = timings.ratio(SAVE, OURS)


def memcpy_of(tensors: Mapping[str, Tensor]) -> Callable[[], object]:
    """Copies them, one call for each, into memory that is there and touched."""
    pairs = [(np.full_like(tensor.numpy(), 1), tensor.numpy()) for tensor in tensors.values()]

    def run() -> None:
        for target, source in pairs:
            np.copyto(target, source)

    return run


def _block(tensors: Mapping[str, Tensor]) -> Callable[[], object]:
    size = sum(tensor.nbytes for tensor in tensors.values())
    source, target = np.full(size, 1, dtype=np.uint8), np.full(size, 2, dtype=np.uint8)
    return lambda: np.copyto(target, source)


def _two_passes(tensors: Mapping[str, Tensor]) -> Callable[[], object]:
    pairs = [(torch.full_like(tensor, 1.0), tensor) for tensor in tensors.values()]

    def run() -> bool:
        for target, source in pairs:
            target.copy_(source)
        return all(bool(torch.isfinite(target).all()) for target, _ in pairs)

    return run
