"""A toy to train in milliseconds: two layers, a batch norm and a dropout, so that buffers and generators matter."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from failsoft.artifacts.store import ArtifactStore
from failsoft.health.clock import Clock, ManualClock, SystemClock
from failsoft.health.faults import FaultPlan
from failsoft.health.ledger import Ledger, Side
from failsoft.training.batches import GlobalBatches
from failsoft.training.breaker import Breaker, BreakerPolicy
from failsoft.training.checkpoints.checkpoint import Checkpoints, Deliver, deliver_here
from failsoft.training.checkpoints.writer import CheckpointWriter, writer_behind
from failsoft.training.chronicle import Desk
from failsoft.training.guard import StepGuard
from failsoft.training.loop import LoopPlan, TrainLoop
from failsoft.training.ranks import Ranks, SoloRank
from failsoft.training.state import TrainingState, model_tensors

SAMPLES = 64


def toy_model(seed: int = 0, *, hidden: int = 6) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Dropout(0.2), nn.Linear(hidden, 1))


def toy_data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    inputs = torch.randn(SAMPLES, 4, generator=generator)
    return inputs, inputs.sum(1, keepdim=True)


class ToyTask:
    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.inputs, self.targets = toy_data()
        self.seen: list[int] = []

    def loss(self, indices: NDArray[np.int64]) -> Tensor:
        self.seen += indices.tolist()
        rows = torch.from_numpy(indices)
        return nn.functional.mse_loss(self.model(self.inputs[rows]), self.targets[rows])


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model_tensors(model).items()}


def same(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def toy_loop(  # noqa: PLR0913 -- a test names the one that it is about
    folder: Path,
    *,
    faults: FaultPlan | None = None,
    plan: LoopPlan | None = None,
    ranks: Ranks | None = None,
    deliver: Deliver = deliver_here,
    hidden: int = 6,
    clock: Clock | None = None,
) -> TrainLoop:
    ranks, clock = ranks or SoloRank(), clock or ManualClock()
    plan = plan or LoopPlan(total_batches=24, seed=3, snapshot_every_steps=4, checkpoint_every_steps=8)
    model = toy_model(plan.seed, hidden=hidden)
    wrapped = nn.parallel.DistributedDataParallel(model) if ranks.world > 1 else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=20)
    breaker = Breaker(BreakerPolicy())
    state = TrainingState(model=model, optimizer=optimizer, scheduler=scheduler, breaker=breaker)
    ledger = Ledger(folder / "ledger.jsonl", clock, side=Side.TRAINING, subject=folder.name)
    batches = GlobalBatches(num_samples=SAMPLES, global_batch=8, seed=plan.seed)
    return TrainLoop(
        state=state,
        task=ToyTask(wrapped),
        batches=batches,
        plan=plan,
        guard=StepGuard(model=wrapped, optimizer=optimizer, scheduler=scheduler, ranks=ranks),
        breaker=breaker,
        checkpoints=Checkpoints(
            store=ArtifactStore(folder / "checkpoints", clock, kind="checkpoint"),
            identity={"seed": plan.seed, "total_batches": plan.total_batches},
            ranks=ranks,
            ledger=ledger,
            deliver=deliver,
        ),
        desk=Desk(folder=folder, ledger=ledger, clock=clock, faults=faults or FaultPlan()),
    )


def written_behind(loop: TrainLoop, writer: CheckpointWriter | None = None) -> TrainLoop:
    """The loop with its checkpoints written by another process, or by this writer."""
    old = loop.checkpoints
    loop.checkpoints = Checkpoints(
        store=old.store,
        identity=old.identity,
        ranks=old.ranks,
        ledger=old.ledger,
        deliver=old.deliver,
        writer=writer or writer_behind(old.store, SystemClock()),
    )
    return loop
