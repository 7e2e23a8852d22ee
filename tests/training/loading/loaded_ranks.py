"""Ranks that load their samples: ``python -m … RANK WORLD FOLDER PLANS``; prints what each plan ended with."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn

from failsoft.artifacts.store import ArtifactStore
from failsoft.errors import DropRateError, LoaderError
from failsoft.health.clock import SystemClock
from failsoft.health.ledger import Ledger, Side
from failsoft.training.batches import GlobalBatches
from failsoft.training.breaker import Breaker, BreakerPolicy, rate_policy
from failsoft.training.checkpoints.checkpoint import Checkpoints, deliver_here
from failsoft.training.chronicle import Desk
from failsoft.training.guard import GuardPolicy, StepGuard
from failsoft.training.loading.checked import Checked
from failsoft.training.loading.checks import SampleChecks
from failsoft.training.loading.feed import Feed
from failsoft.training.loading.lane import LoaderPolicy
from failsoft.training.loading.loader import GuardedLoader
from failsoft.training.loading.order import RankOrder
from failsoft.training.loading.sample_letters import SampleLetters
from failsoft.training.loading.weighing import weighted_mean
from failsoft.training.loop import LoopPlan, TrainLoop
from failsoft.training.ranks import Ranks, ranks_here
from failsoft.training.state import TrainingState
from tests.training.loading.data import WIDTH, RowData


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A run in numbers."""

    size: int = 48
    batch: int = 12
    total: int = 12
    faults: dict[int, str] = field(default_factory=dict)
    workers: int = 0
    min_samples: int = 100_000
    """Of the rate of skipped samples."""
    learning_rate: float = 0.05
    pause_s: float = 0.0
    """Before each sample."""
    updates: int = 1
    """That each batch is spread over."""


class LoadedTask:
    """A linear model in double precision: the gradients of two worlds can be compared to the last digits."""

    def __init__(self, model: nn.Module, feed: Feed) -> None:
        self._model = model
        self.load_samples = feed.load_samples
        self.weight = feed.weight
        self.take_skipped = feed.take_skipped
        self.take_synthetic = feed.take_synthetic
        self._feed = feed

    def loss(self, indices: NDArray[np.int64]) -> Tensor:
        rows, batch = self._feed.rows(indices), self._feed.batch
        losses_B = (self._model(batch.data["x"][rows]).squeeze(1) - batch.data["y"][rows]) ** 2
        return weighted_mean(losses_B, batch.weights_B[rows])


def loaded_loop(folder: Path, plan: Plan, ranks: Ranks) -> tuple[TrainLoop, Feed]:
    clock = SystemClock()
    torch.manual_seed(1)
    model = nn.Linear(WIDTH, 1).double()
    wrapped = nn.parallel.DistributedDataParallel(model) if ranks.world > 1 else model
    optimizer = torch.optim.SGD(model.parameters(), lr=plan.learning_rate, momentum=0.9)
    breaker = Breaker(BreakerPolicy(skip_rate=rate_policy(window_size=10_000_000, min_samples=plan.min_samples)))
    state = TrainingState(model=model, optimizer=optimizer, breaker=breaker)
    ledger = Ledger(folder / "ledger.jsonl", clock, side=Side.TRAINING, subject=folder.name)
    batches = GlobalBatches(num_samples=plan.size, global_batch=plan.batch, seed=3)
    order = RankOrder(batches=batches, rank=ranks.rank, world=ranks.world, total=plan.total)
    checks = SampleChecks(like=RowData(1)[0])
    checked = Checked(RowData(plan.size, plan.faults, pause_s=plan.pause_s), checks=checks, reserve=order.reserve)
    loader = GuardedLoader(checked, order, policy=LoaderPolicy(workers=plan.workers), tell=ledger.record)
    feed = Feed(loader=loader, letters=SampleLetters(folder / "dead_letters", rank=ranks.rank, clock=clock))
    store = ArtifactStore(folder / "checkpoints", clock, kind="checkpoint")
    at_once = LoopPlan(total_batches=plan.total, seed=3, snapshot_every_steps=4, checkpoint_every_steps=1000)
    loop = TrainLoop(
        state=state,
        task=LoadedTask(wrapped, feed),
        batches=batches,
        plan=at_once if plan.updates == 1 else replace(at_once, pace=None),
        guard=StepGuard(model=wrapped, optimizer=optimizer, ranks=ranks, policy=GuardPolicy(max_grad_norm=None)),
        breaker=breaker,
        checkpoints=Checkpoints(
            store=store, identity={"total": plan.total}, ranks=ranks, ledger=ledger, deliver=deliver_here
        ),
        desk=Desk(folder=folder, ledger=ledger, clock=clock),
    )
    loop.net.least_updates = plan.updates
    return loop, feed


def trained(folder: Path, plan: Plan, ranks: Ranks) -> dict[str, object]:
    loop, feed = loaded_loop(folder, plan, ranks)
    stopped = ""
    try:
        loop.run()
    except (DropRateError, LoaderError) as error:
        stopped = str(error)
    feed.close()
    skips = loop.breaker.skip_rate
    weights = torch.cat([parameter.detach().flatten() for parameter in loop.state.model.parameters()])
    return {
        "step": loop.state.step,
        "position": loop.state.position,
        "weights": weights.tolist(),
        "skipped": skips.bad,
        "met": skips.total,
        "synthetic": loop._samples.share.bad,
        "warning": skips.warning,
        "stopped": stopped,
    }


def plan_of(body: dict[str, Any]) -> Plan:
    return replace(Plan(**body), faults={int(index): fault for index, fault in body.get("faults", {}).items()})


def main(rank: int, world: int, folder: Path, plans: list[Plan]) -> None:
    torch.set_num_threads(1)
    meeting = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=world, timeout=timedelta(seconds=120))
    print(json.dumps([trained(folder / str(place), plan, ranks_here()) for place, plan in enumerate(plans)]))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), [plan_of(body) for body in json.loads(sys.argv[4])])
