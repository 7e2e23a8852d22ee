"""One of two gloo ranks as a process: ``python -m … RANK FOLDER``; prints a JSON line for each trial.

Time is each rank's manual clock, which planned slow ranks move on: nothing depends on the machine.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from failsoft.health.backoff import BackoffPolicy
from failsoft.health.clock import SystemClock
from failsoft.health.faults import Fault, FaultKind, FaultPlan, burst
from failsoft.training.chronicle import Desk
from failsoft.training.loop import LoopPlan, TrainLoop
from failsoft.training.pace.policy import PacePolicy, RemedyPolicy
from failsoft.training.ranks import ranks_here
from failsoft.training.state import model_tensors
from failsoft.training.validation import ValidationPlan, Validator
from tests.training.toys import ToyTask, toy_loop

TOTAL = 200
PACE = PacePolicy(window=6, min_samples=4)
PATIENCE = BackoffPolicy(first_s=0.5, factor=3.0, cap_s=60.0, jitter_fraction=0.0)
EACH_S = 0.01


class Plain:
    """A model without batch norm and dropout, so that any division of a batch gives the same gradient."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def slow(rank: int, sample_s: float, *, first: int = 0, last: int = TOTAL) -> Fault:
    return Fault(kind=FaultKind.SLOW_RANK, position=first, last=last, rank=rank, sample_s=sample_s)


EVEN = (slow(0, EACH_S), slow(1, EACH_S))
STRAGGLER = (*EVEN, slow(1, 2 * EACH_S, first=30, last=100))
"""Rank 1 takes three times as long for each sample, for a while."""
NAN = burst(FaultKind.NAN_BATCH, first=86, count=5)
HOPELESS = (*EVEN, slow(1, 40 * EACH_S, first=30, last=100))


def looped(
    folder: Path, *faults: Fault, remedy: RemedyPolicy | None = None, plain: bool = False, total: int = TOTAL
) -> TrainLoop:
    plan = LoopPlan(total_batches=total, seed=3, pace=PACE, pace_remedy=remedy)
    loop = toy_loop(folder, faults=FaultPlan(faults=faults), plan=plan, ranks=ranks_here())
    if plain:
        loop = with_plain_model(loop)
    return _rebuilt(loop, desk=replace(loop.desk, record_consumed=True))


def _rebuilt(loop: TrainLoop, *, desk: Desk) -> TrainLoop:
    """Made anew from what it was given, as its parts are made from that."""
    loop.guard.run_passes = loop.guard.backward.run
    return TrainLoop(**({name: getattr(loop, name) for name in GIVEN} | {"desk": desk}))


GIVEN = ("state", "task", "batches", "plan", "guard", "breaker", "checkpoints", "desk")


def with_plain_model(loop: TrainLoop) -> TrainLoop:
    model = Plain().model
    wrapped = DistributedDataParallel(model) if loop.guard.ranks.world > 1 else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    loop.state = replace(loop.state, model=model, optimizer=optimizer, scheduler=None, guard=None)
    loop.guard = replace(loop.guard, model=wrapped, optimizer=optimizer, scheduler=None)
    loop.task = ToyTask(wrapped)
    return loop


def ended(loop: TrainLoop) -> dict[str, Any]:
    loop.run()
    weights = {name: tensor.double().flatten().tolist() for name, tensor in model_tensors(loop.state.model).items()}
    return {"step": loop.state.step, "position": loop.state.position, "weights": weights}


def in_earnest(folder: Path) -> TrainLoop:
    """By the machine's clock: rank 1 sleeps in each pass, rank 0 waits for it in the backward pass."""
    loop = looped(folder, slow(1, 0.03), total=30)
    return _rebuilt(loop, desk=replace(loop.desk, clock=SystemClock()))


class Judged:
    """Rank 1 runs out of memory at each look, or at each second one."""

    validation_samples = 20

    def __init__(self, fails: str) -> None:
        self._fails = fails
        self._asked = 0

    def validate(self, model: nn.Module, indices: NDArray[np.int64]) -> Mapping[str, float]:
        self._asked += 1
        if dist.get_rank() == 1 and (self._fails == "always" or len(indices) > 4):
            raise torch.OutOfMemoryError("CUDA out of memory")
        return {"val_loss": float(model(torch.ones(len(indices), 4)).mean()), "val_ids": float(indices.mean())}


def validated(folder: Path, fails: str) -> TrainLoop:
    loop = looped(folder, *EVEN)
    judged, plan = Judged(fails), ValidationPlan(every_steps=20, batch=8)
    loop.validation = Validator(
        judged, loop.state, loop.guard.ranks, loop.desk, plan, batches_per_epoch=loop.batches.batches_per_epoch
    )
    return loop


def main(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    meeting = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2, timeout=timedelta(seconds=120))
    remedy = RemedyPolicy(patience=PATIENCE)
    trials = {
        "even": lambda at: looped(at, *EVEN),
        "named": lambda at: looped(at, *STRAGGLER),
        "plain": lambda at: looped(at, *EVEN, plain=True),
        "remedied": lambda at: looped(at, *STRAGGLER, remedy=remedy, plain=True),
        "hopeless": lambda at: looped(at, *HOPELESS, remedy=remedy, plain=True),
        "undone": lambda at: looped(at, *STRAGGLER, *NAN, remedy=remedy, plain=True),
        "shrinks": lambda at: validated(at, "large"),
        "gives up": lambda at: validated(at, "always"),
        "in earnest": in_earnest,
    }
    for name, make in trials.items():
        print(json.dumps({"trial": name} | ended(make(folder / name))), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
