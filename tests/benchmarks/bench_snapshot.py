"""A RAM snapshot of model and AdamW state against a plain copy of the same bytes, and against what is usually written.

Ours is the whole ``take()``: names, copy, health check, generators, swap. The plain copy is memcpy through numpy into
memory that was made and touched before, one call per tensor over views made before; beside it the same bytes in one
block, which no state of a model is. Both leave out everything else that a snapshot needs.
"""

from __future__ import annotations

import gc
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from failsoft.training.snapshots.snapshot import RamSnapshots
from failsoft.training.state import TrainingState, flatten
from tests.benchmarks.measuring import Contender, Timings, interleave
from tests.benchmarks.outcome import Outcome

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
            parts.append(_one(outcome, size, threads))
            gc.collect()
    torch.set_num_threads(threads_before)
    for name, pick in (
        ("stall_over_memcpy", max),
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


def _one(outcome: Outcome, size: Size, threads: int) -> str:
    state, part = trained(size), f"{size.name}_{threads}t"
    tensors = flatten(state).tensors
    snapshots = RamSnapshots(state)
    for _ in range(2):
        assert snapshots.take() is None
    contenders = {
        OURS: snapshots.take,
        MEMCPY: _memcpy(tensors),
        BLOCK: _block(tensors),
        TWO_PASSES: _two_passes(tensors),
        NAIVE: lambda: {name: tensor.cpu().clone() for name, tensor in tensors.items()},
        SAVE: lambda: torch.save(tensors, io.BytesIO()),
    }
    calls = 20 if size is QUICK else 1
    field = [Contender(name=name, run=run, calls=calls) for name, run in contenders.items()]
    timings = interleave(field, rounds=size.rounds, control=OURS)
    size_bytes = sum(tensor.nbytes for tensor in tensors.values())
    outcome.add(f"{size.name}, {size_bytes / 1e6:.0f} MB in {len(tensors)} tensors, {threads} thread(s)", timings)
    _ratios(outcome, timings, part)
    snapshots.restore()
    assert all(torch.equal(kept, flatten(state).tensors[name]) for name, kept in tensors.items())
    return part


def _ratios(outcome: Outcome, timings: Timings, part: str) -> None:
    outcome.ratios[f"stall_over_memcpy_{part}"] = timings.ratio(OURS, MEMCPY)
    outcome.ratios[f"stall_over_block_memcpy_{part}"] = timings.ratio(OURS, BLOCK)
    outcome.ratios[f"two_passes_over_ours_{part}"] = timings.ratio(TWO_PASSES, OURS)
    outcome.ratios[f"naive_over_ours_{part}"] = timings.ratio(NAIVE, OURS)
    outcome.ratios[f"torch_save_over_ours_{part}"] = timings.ratio(SAVE, OURS)


def _memcpy(tensors: Mapping[str, Tensor]) -> Callable[[], object]:
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
