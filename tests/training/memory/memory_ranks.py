"""One of two gloo ranks that step through planned shortage of memory: ``python -m … RANK FOLDER``; a JSON line each.

A collective that one rank leaves alone ends after a minute and a half, with an error, instead of a hang.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from failsoft.health.faults import Fault, FaultKind, FaultMoment
from failsoft.training.degradation import Degradations
from failsoft.training.faulty import strike
from failsoft.training.guard import GuardPolicy, StepGuard
from failsoft.training.memory.batch import Batch
from failsoft.training.memory.micro_batches import Indices
from failsoft.training.memory.net import MemoryNet
from failsoft.training.memory.rungs import MemoryPolicy
from failsoft.training.ranks import ranks_here

PATIENCE = timedelta(seconds=90)
"""A busy machine may keep a rank waiting for ten seconds that the other has not left alone."""
Loss = Callable[[Indices], Tensor]
SAMPLES = 14
"""Seven a rank: 4 + 3, then 2 + 2 + 2 + 1."""
BATCHES = 5


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Where memory runs out, and how DDP is set up."""

    faults: tuple[Fault, ...]
    unused: bool = False
    views: bool = False
    buffers: bool = False
    hook: bool = False
    scaled: bool = False
    between: tuple[tuple[int, int, int], ...] | None = None
    """The loss calls the model twice; between the two memory runs out: position, rank, and above how many samples."""


def fault(position: int, rank: int, when: FaultMoment, *, above: int = 4) -> Fault:
    return Fault(kind=FaultKind.OUT_OF_MEMORY, position=position, rank=rank, when=when, above_samples=above)


FORWARD, BACKWARD = FaultMoment.FORWARD, FaultMoment.BACKWARD
EACH = (fault(1, 1, FORWARD), fault(3, 0, BACKWARD, above=2))
TRIALS: dict[str, Trial] = {
    "forward, rank 1": Trial(faults=(fault(1, 1, FORWARD),)),
    "backward, rank 1": Trial(faults=(fault(1, 1, BACKWARD),)),
    "backward, rank 0": Trial(faults=(fault(2, 0, BACKWARD),)),
    "first batch, forward": Trial(faults=(fault(0, 1, FORWARD),)),
    "first batch, backward": Trial(faults=(fault(0, 1, BACKWARD),)),
    "second batch, forward": Trial(faults=(fault(1, 0, FORWARD),)),
    "one batch, one rank in each pass": Trial(faults=(fault(2, 0, FORWARD), fault(2, 1, BACKWARD))),
    "again, in a micro-batch": Trial(faults=(fault(2, 1, BACKWARD, above=1),)),
    "again later": Trial(faults=EACH),
    "buffers": Trial(faults=EACH, buffers=True),
    "buffers, first batch": Trial(faults=(fault(0, 1, BACKWARD), fault(1, 0, FORWARD)), buffers=True),
    "unused parameters": Trial(faults=EACH, unused=True),
    "gradients as views": Trial(faults=EACH, views=True),
    "grad scaler": Trial(faults=(fault(0, 1, FORWARD), fault(3, 0, BACKWARD, above=2)), scaled=True),
    "called twice": Trial(faults=(fault(3, 0, BACKWARD, above=2),), between=((1, 1, 4),)),
    "called twice, buffers": Trial(faults=(fault(3, 0, BACKWARD, above=2),), buffers=True, between=((1, 1, 4),)),
    "called twice, buffers, in a micro-batch": Trial(
        faults=(fault(4, 1, FORWARD, above=1),), buffers=True, between=((1, 1, 4), (2, 0, 2), (3, 1, 1))
    ),
    "communication hook": Trial(faults=EACH, hook=True),
}


class Counted(nn.Module):
    """Has a buffer that DDP sends around before each forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(3))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs


def network(trial: Trial) -> nn.Module:
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Linear(4, 9), nn.Tanh(), nn.Linear(9, 9), nn.Tanh(), nn.Linear(9, 1)]
    return nn.Sequential(*layers, *([Counted()] if trial.buffers else [])).double()


def data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    inputs = torch.randn(SAMPLES * BATCHES, 4, generator=generator, dtype=torch.float64)
    return inputs, inputs.prod(1, keepdim=True)


def batches() -> list[Indices]:
    return [np.arange(SAMPLES, dtype=np.int64) + SAMPLES * number for number in range(BATCHES)]


def loss_of(model: nn.Module, faults: Sequence[Fault], samples: Indices) -> Tensor:
    inputs, targets = data()
    rows = torch.from_numpy(samples)
    return strike(lambda: nn.functional.mse_loss(model(inputs[rows]), targets[rows]), len(samples), faults, model)


def loss_of_two(model: nn.Module, faults: Sequence[Fault], short_above: int, samples: Indices) -> Tensor:
    """Calls the model on two views of the samples."""
    inputs, targets = data()
    rows = torch.from_numpy(samples)

    def both() -> Tensor:
        one = nn.functional.mse_loss(model(inputs[rows]), targets[rows])
        if len(samples) > short_above:
            raise torch.OutOfMemoryError("planned fault: CUDA out of memory between two calls")
        return one + nn.functional.mse_loss(model(-inputs[rows]), targets[rows])

    return strike(both, len(samples), faults, model)


def loss_in(trial: Trial, model: nn.Module, faults: Sequence[Fault], place: tuple[int, int]) -> Loss:
    """The trial's loss at a position, on a rank."""
    if trial.between is None:
        return partial(loss_of, model, faults)
    short = {(position, rank): above for position, rank, above in trial.between}
    return partial(loss_of_two, model, faults, short.get(place, SAMPLES))


def oracle(trial: Trial) -> list[Tensor]:
    """The gradients of whole batches, one process, no net, no ranks."""
    model = network(trial)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in batches():
        optimizer.zero_grad()
        loss_in(trial, model, (), (-1, -1))(batch).backward()
        optimizer.step()
    return [torch.as_tensor(parameter.grad).clone() for parameter in model.parameters()]


def tried(trial: Trial) -> dict[str, Any]:
    model, ranks = network(trial), ranks_here()
    wrapped = DistributedDataParallel(
        model,
        bucket_cap_mb=0.0005,  # several buckets, also of a tiny network
        find_unused_parameters=trial.unused,
        gradient_as_bucket_view=trial.views,
    )
    if trial.hook:
        wrapped.register_comm_hook(None, allreduce_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = GradScaler("cpu", init_scale=8.0) if trial.scaled else None
    policy = GuardPolicy(max_grad_norm=None)
    guard = StepGuard(model=wrapped, optimizer=optimizer, scaler=scaler, ranks=ranks, policy=policy)
    told: list[str] = []
    say: Callable[..., object] = lambda _kind, why, **_data: told.append(why)  # noqa: E731 -- handed in as it is
    net = MemoryNet(guard=guard, policy=MemoryPolicy(), task=None, global_batch=SAMPLES, degradations=Degradations(say))
    net.begin()
    applied, rungs = [], []
    for position, whole in enumerate(batches()):
        mine = [f for f in trial.faults if (f.position, f.rank) == (position, ranks.rank)]
        outcome = net.step(
            Batch(position=position, whole=whole, loss=loss_in(trial, wrapped, mine, (position, ranks.rank)))
        )
        applied.append(outcome.applied)
        rungs.append(net.ladder.notch.in_words())
    pairs = list(zip(model.parameters(), oracle(trial), strict=True))
    apart = max(float(((p.grad - g).abs() / g.abs().clamp(min=1e-9)).max()) for p, g in pairs if p.grad is not None)
    weights = [value for parameter in model.parameters() for value in parameter.flatten().tolist()]
    scale = None if scaler is None else scaler.get_scale()
    return {"scale": scale, "applied": applied, "rungs": rungs, "apart": apart, "told": told, "weights": weights}


def main(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    meeting = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2, timeout=PATIENCE)
    for name, trial in TRIALS.items():
        print(json.dumps({"name": name} | tried(trial)), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
