"""The train script that ``failsoft drill`` breaks when it is given none: a small run with every guard that there is.

``python -m failsoft.drills.training.toy FOLDER``: the run in this folder, from its newest checkpoint if there is one.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from failsoft.artifacts.store import ArtifactStore
from failsoft.errors import PreemptedError
from failsoft.health.clock import SystemClock
from failsoft.health.ledger import Ledger, Side
from failsoft.training.batches import GlobalBatches
from failsoft.training.breaker import Breaker, BreakerPolicy
from failsoft.training.checkpoints.checkpoint import Checkpoints, deliver_here
from failsoft.training.checkpoints.writer import writer_behind
from failsoft.training.chronicle import Desk
from failsoft.training.guard import GuardPolicy, StepGuard
from failsoft.training.loop import LoopPlan, TrainLoop
from failsoft.training.ranks import SoloRank
from failsoft.training.spikes import SpikePolicy
from failsoft.training.state import TrainingState
from failsoft.training.survival.agreement import NoticedRanks
from failsoft.training.survival.notice import Notice, listening
from failsoft.training.survival.watch_policy import WatchPolicy
from failsoft.training.survival.watchdog import Watchdog, WatchPost

_SAMPLES, _BATCH = 512, 8
_SPIKES = SpikePolicy(window=40, warm_up=10)
_PATIENCE = WatchPolicy(step_s=2.0, first_step_s=6.0, validation_s=2.0, checkpoint_s=6.0, tick_s=0.1)
"""Far above what a batch of this toy takes (4 ms), so that a busy machine is no hang."""


class Sums:
    """What is learnt: the sum of four numbers."""

    def __init__(self, model: nn.Module) -> None:
        generator = torch.Generator().manual_seed(5)
        self.model = model
        self.inputs = torch.randn(_SAMPLES, 4, generator=generator)
        self.targets = self.inputs.sum(1, keepdim=True)

    def loss(self, indices: NDArray[np.int64]) -> Tensor:
        """Mean squared error of these samples."""
        rows = torch.from_numpy(indices)
        return nn.functional.mse_loss(self.model(self.inputs[rows]), self.targets[rows])


@dataclass(frozen=True, kw_only=True)
class Look:
    """Every 30 updates, at 64 samples, 5 behind a checkpoint.

    It waits until that one is on disk: in the seconds that batches of a real run take it would be, and not in the
    4 ms of this toy's.
    """

    task: Sums
    checkpoints: Checkpoints

    def due(self, state: TrainingState) -> bool:
        """Whether to look."""
        return state.step % 30 == 5

    def run(self) -> Mapping[str, float]:
        """The loss, with the model as it is when it serves."""
        self.checkpoints.settle()
        training = self.task.model.training
        self.task.model.eval()
        try:
            with torch.no_grad():
                return {"val_loss": float(self.task.loss(np.arange(64)))}
        finally:
            self.task.model.train(training)


def toy_run(folder: Path, notice: Notice, *, total_batches: int = 120) -> TrainLoop:
    """The loop; not begun."""
    torch.manual_seed(0)
    clock = SystemClock()
    plan = LoopPlan(total_batches=total_batches, seed=0, snapshot_every_steps=10, checkpoint_every_steps=30)
    model = nn.Sequential(nn.Linear(4, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    ranks, task, breaker = NoticedRanks(SoloRank(), notice), Sums(model), Breaker(BreakerPolicy())
    ledger = Ledger(folder / "ledger.jsonl", clock, side=Side.TRAINING, subject=folder.name)
    store = ArtifactStore(folder / "checkpoints", clock, kind="checkpoint")
    guard = GuardPolicy(loss_spikes=_SPIKES, norm_spikes=_SPIKES)
    checkpoints = Checkpoints(
        store=store,
        identity={"seed": 0},
        ranks=ranks,
        ledger=ledger,
        deliver=deliver_here,
        writer=writer_behind(store, clock),
    )
    return TrainLoop(
        state=TrainingState(model=model, optimizer=optimizer, breaker=breaker),
        task=task,
        batches=GlobalBatches(num_samples=_SAMPLES, global_batch=_BATCH, seed=0),
        plan=plan,
        guard=StepGuard(model=model, optimizer=optimizer, ranks=ranks, policy=guard),
        breaker=breaker,
        checkpoints=checkpoints,
        desk=Desk(folder=folder, ledger=ledger, clock=clock, record_consumed=True),
        validation=Look(task=task, checkpoints=checkpoints),
        told=ranks.told,
    )


def main(folder: Path) -> int:
    """Train; the exit status."""
    torch.set_num_threads(1)
    notice = Notice()
    loop = toy_run(folder, notice)
    post = WatchPost(folder=folder, ledger=loop.desk.ledger, clock=loop.desk.clock)
    try:
        with listening(notice), Watchdog(post, _PATIENCE) as watch:
            loop.watch = watch
            loop.run()
    except PreemptedError as left:
        print(left)
        return left.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
