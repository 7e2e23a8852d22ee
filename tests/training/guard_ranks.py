"""One of two gloo ranks that step guards through planned trouble: ``python -m … RANK FOLDER``; a JSON line each.

A collective that one rank leaves alone ends after ten seconds, with an error, instead of a hang.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import ExponentialLR

from failsoft.training.gradients import whole
from failsoft.training.guard import StepGuard, StepOutcome
from failsoft.training.late_guard import LateStepGuard
from failsoft.training.ranks import ranks_here
from tests.training.twins import BATCH, OPTIMIZERS, WARM_UP, Bad, Recipe, Run, difference

PATIENCE = timedelta(seconds=10)
Kinds = tuple[Bad | None, Bad | None]
"""What is wrong with each rank's part of one global batch."""
FINE: Kinds = (None, None)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A plan for two ranks."""

    plan: Sequence[Kinds]
    optimizer: str = "adamw"
    sizes: tuple[Sequence[int], Sequence[int]] = ((BATCH,), (BATCH,))
    scaled: bool = False
    late: bool = False


def wild(seed: int, kinds: Sequence[Bad] = tuple(Bad)) -> list[Kinds]:
    """Trouble at random steps, on one rank, the other, or both in different ways."""
    chance = random.Random(seed)
    pick = lambda: chance.choice([None, None, None, *kinds])  # noqa: E731 -- drawn for each rank apart
    return [FINE] * WARM_UP + [(pick(), pick()) for _ in range(14)] + [FINE]


PARTS = ((3, 3, 2), (3, 3, 2))
TRIALS: dict[str, Trial] = {
    "nan input on one rank": Trial(plan=[FINE, (None, Bad.NAN_INPUT), FINE, (Bad.NAN_INPUT, None), FINE]),
    "inf gradient on one rank": Trial(plan=[FINE, (Bad.INF_GRADIENT, None), FINE]),
    "loss spike on one rank": Trial(plan=[FINE, FINE, (None, Bad.LOSS_SPIKE), FINE]),
    "gradient spike on one rank": Trial(plan=[FINE, FINE, (Bad.GRADIENT_SPIKE, None), FINE]),
    "bad at different steps": Trial(
        plan=[FINE, (Bad.NAN_LOSS, None), (None, Bad.NAN_LOSS), (Bad.NAN_LOSS, None), FINE]
    ),
    "anything, sgd momentum": Trial(plan=wild(1), optimizer="sgd momentum"),
    "anything, adamw": Trial(plan=wild(2)),
    "anything, adamw foreach": Trial(plan=wild(3), optimizer="adamw foreach"),
    "anything, adamw fused": Trial(plan=wild(4), optimizer="adamw fused"),
    "accumulation": Trial(plan=wild(5), sizes=PARTS),
    "accumulation, fused": Trial(plan=wild(6), sizes=PARTS, optimizer="adamw fused"),
    "accumulation of unequal counts": Trial(plan=wild(7), sizes=((8,), (3, 3, 2))),
    "grad scaler": Trial(plan=wild(8), scaled=True, optimizer="adamw fused"),
    "late verdict": Trial(plan=wild(9), late=True, optimizer="adamw fused"),
    "late verdict, sgd momentum": Trial(plan=wild(10), late=True, optimizer="sgd momentum fused"),
    "late verdict, accumulation and grad scaler": Trial(
        plan=wild(11), late=True, scaled=True, sizes=PARTS, optimizer="adamw fused"
    ),
}


def network() -> nn.Module:
    """With buffers, without dropout: a late verdict does not rewind generators."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 1))


def made(trial: Trial, model: Callable[[], nn.Module] = network) -> Run:
    ranks = ranks_here()
    recipe = Recipe(
        optimizer=OPTIMIZERS[trial.optimizer],
        sizes=trial.sizes[ranks.rank],
        scaled=trial.scaled,
        scheduler=lambda optimizer: ExponentialLR(optimizer, gamma=0.95),
        model=model,
        wrap=DistributedDataParallel,
    )
    return recipe.make(ranks)


def stepped(trial: Trial, numbers: Sequence[int]) -> tuple[Run, list[StepOutcome]]:
    run, rank = made(trial), dist.get_rank()
    late = LateStepGuard(run.guard) if trial.late else None
    outcomes: list[StepOutcome] = []
    for number in numbers:
        bad, own = trial.plan[number][rank], 2 * number + rank
        if late is None:
            outcomes.append(run.step(own, bad))
        else:
            shares = [size / BATCH for size in run.sizes]
            outcomes += late.step(run.computes(own, bad), shares=shares, position=own)
    return run, outcomes + list(() if late is None else late.settle())


def tried(trial: Trial) -> dict[str, Any]:
    """Against the run that never saw a bad batch; and a digest of what both ranks must share."""
    everywhere = range(len(trial.plan))
    met, outcomes = stepped(trial, everywhere)
    after = met.everything()
    spared, good = stepped(trial, [number for number in everywhere if trial.plan[number] == FINE])
    return {
        "differs": difference(after, spared.everything()),
        "refusals": [outcome.refusal for outcome in outcomes],
        "good ones refused": sum(not outcome.applied for outcome in good),
        "planned": [kinds != FINE for kinds in trial.plan],
        "digest": digest(met),
    }


def digest(run: Run) -> str:
    """Of weights, their average, and moments; batch statistics are each rank's own."""
    hashed = hashlib.sha256()
    state = run.guard.optimizer.state_dict()["state"]
    moments = [value for slot in state.values() for value in slot.values() if isinstance(value, Tensor)]
    averaged = [] if run.guard.ema is None else list(run.guard.ema.module.parameters())
    for tensor in [*run.guard.model.parameters(), *averaged, *moments]:
        hashed.update(tensor.detach().numpy().tobytes())
    return hashed.hexdigest()


def plain() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1))


def out_of_memory() -> dict[str, Any]:
    """Both ranks fail after the forward pass, and try the same batch again in parts, uneven and of unequal count."""
    rank = dist.get_rank()
    whole, parted = made(Trial(plan=[FINE]), plain), made(Trial(plan=[FINE]), plain)
    whole.step(rank)
    failed = 0
    try:
        parted.guard.step(_fails(parted.computes(rank)[0]))
    except MemoryError:
        parted.sizes, failed = ((3, 3, 2), (5, 3))[rank], 1
    parted.step(rank)
    pairs = zip(whole.guard.gradients.tensors(), parted.guard.gradients.tensors(), strict=True)
    apart = max(float(((left - right).abs() / left.abs().clamp(min=1e-2)).max()) for left, right in pairs)
    return {"apart": apart, "failed": failed, "digest": digest(parted)}


def _fails(compute: Callable[[], Tensor]) -> Callable[[], Tensor]:
    def broken() -> Tensor:
        compute()
        raise MemoryError

    return broken


def ranks_unsaid() -> dict[str, Any]:
    """Three lines and no word of ranks; a loss that is NaN on one rank, with gradients that are finite on both."""
    model = plain()
    wrapped = DistributedDataParallel(model)
    guard = StepGuard(model=wrapped, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    excess = torch.nan if dist.get_rank() == 1 else 0.0
    outcome = guard.step(lambda: wrapped(torch.ones(2, 4)).mean() + excess)
    return {"applied": outcome.applied}


def compressed(*, late: bool) -> dict[str, Any]:
    """PowerSGD keeps what it did not send of a batch, and adds it to the next one's gradients."""
    model = plain()
    wrapped = DistributedDataParallel(model)
    state = PowerSGDState(None, start_powerSGD_iter=2, min_compression_rate=0.1)
    wrapped.register_comm_hook(state, powerSGD_hook)
    guard = StepGuard(model=wrapped, optimizer=torch.optim.AdamW(model.parameters(), lr=0.1, fused=True))
    behind = LateStepGuard(guard)
    told = list[StepOutcome]()
    for number in range(10):
        compute = partial(_times, wrapped, torch.nan if number == 5 and dist.get_rank() == 1 else 1.0)
        told += behind.step(compute) if late else [guard.step(compute)]
    return {"refused": [not outcome.applied for outcome in (*told, *behind.settle())]}


def sharded(*, late: bool) -> dict[str, Any]:
    """FSDP2 over both ranks, where one holds nothing of the last bias; a NaN on rank 1, then an overflow on both."""
    model = plain()
    fully_shard(model)
    guard = StepGuard(model=model, optimizer=torch.optim.AdamW(model.parameters(), lr=0.1, fused=True))
    behind = LateStepGuard(guard)
    told, weights = list[StepOutcome](), list[list[float]]()
    for factors in ((1.0, 1.0), (1.0, torch.nan), (1e30, 1e30), (1.0, 1.0)):
        compute = partial(_times, model, factors[dist.get_rank()])
        told += (*behind.step(compute), *behind.settle()) if late else [guard.step(compute)]
        weights.append(torch.cat([whole(each.detach()).flatten() for each in model.parameters()]).tolist())
    return {
        "refused": [not outcome.applied for outcome in told],
        "blamed": [outcome.bad_tensor is not None for outcome in told],
        "moved": [before != after for before, after in pairwise(weights)],
        "ill": guard.first_unhealthy(),
    }


def _times(model: nn.Module, factor: float) -> Tensor:
    return torch.as_tensor(model(torch.ones(2, 4)).mean() * factor)


def main(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2, timeout=timedelta(seconds=120)
    )
    dist.barrier()  # whoever starts late on a busy machine is no fault
    dist.distributed_c10d._set_pg_timeout(PATIENCE)
    for name, trial in TRIALS.items():
        print(json.dumps({"name": name} | tried(trial)), flush=True)
    print(json.dumps({"name": "out of memory"} | out_of_memory()), flush=True)
    print(json.dumps({"name": "ranks unsaid"} | ranks_unsaid()), flush=True)
    for late in (False, True):
        print(json.dumps({"name": f"compressed, late {late}"} | compressed(late=late)), flush=True)
        print(json.dumps({"name": f"sharded, late {late}"} | sharded(late=late)), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
