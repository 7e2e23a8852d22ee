"""The toy as a job of failsoft: ``python -m tests.benchmarks.recovery_failsoft FOLDER SPARES``.

The way of ``failsoft train``: guarded steps, snapshots in RAM, checkpoints with manifests from a process behind the
training, the watchdog, the ledger. Restarts are Ray's immediate ones, as the first one of every attempt is.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from failsoft.artifacts.store import ArtifactStore
from failsoft.health.clock import SystemClock
from failsoft.health.ledger import Ledger, Side
from failsoft.local_ray import local_ray
from failsoft.training.batches import GlobalBatches
from failsoft.training.breaker import Breaker, BreakerPolicy
from failsoft.training.checkpoints.checkpoint import Checkpoints, Deliver
from failsoft.training.checkpoints.writer import writer_behind
from failsoft.training.chronicle import Desk
from failsoft.training.guard import StepGuard
from failsoft.training.loop import LoopPlan, TrainLoop
from failsoft.training.ranks import Ranks
from failsoft.training.state import TrainingState
from failsoft.training.survival.warmth import SparePolicy
from tests.benchmarks.leash import led, ray_in_time
from tests.benchmarks.recovery_toy import (
    BATCH,
    CHECKPOINT_EVERY,
    SAMPLES,
    SEED,
    WORKERS,
    Marks,
    await_turn,
    paced,
    toy_data,
    toy_model,
)

_WITHOUT_END = 10_000_000


@dataclass(kw_only=True)
class Task:
    """One rank's share of the toy; its diary is written when the next step begins, for then the last is done."""

    folder: Path
    model: nn.Module
    marks: Marks
    state: TrainingState

    def __post_init__(self) -> None:
        """Make the data."""
        self._inputs, self._targets = toy_data()
        self._fresh = True

    def loss(self, indices: NDArray[np.int64]) -> Tensor:
        """The step before is done when this one begins."""
        if not self._fresh:
            self.marks.done(self.state.step)
        self._fresh = False
        await_turn(self.folder)
        rows = torch.from_numpy(indices)
        return paced(lambda: nn.functional.mse_loss(self.model(self._inputs[rows]), self._targets[rows]))


def build_toy(folder: Path, ranks: Ranks, deliver: Deliver) -> TrainLoop:
    """This rank's loop."""
    clock, marks = SystemClock(), Marks(folder, ranks.rank)
    model = toy_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    breaker = Breaker(BreakerPolicy())
    state = TrainingState(model=model, optimizer=optimizer, breaker=breaker)
    ledger = Ledger(folder / "ledger.jsonl", clock, side=Side.TRAINING, subject=folder.name)
    store = ArtifactStore(folder / "checkpoints", clock, kind="checkpoint")
    return TrainLoop(
        state=state,
        task=Task(folder=folder, model=nn.parallel.DistributedDataParallel(model), marks=marks, state=state),
        batches=GlobalBatches(num_samples=SAMPLES, global_batch=BATCH * WORKERS, seed=SEED),
        plan=LoopPlan(total_batches=_WITHOUT_END, seed=SEED, checkpoint_every_steps=CHECKPOINT_EVERY),
        guard=StepGuard(model=model, optimizer=optimizer, ranks=ranks),
        breaker=breaker,
        checkpoints=Checkpoints(
            store=store,
            identity={"seed": SEED},
            ranks=ranks,
            ledger=ledger,
            deliver=deliver,
            writer=writer_behind(store, clock),
        ),
        desk=Desk(folder=folder, ledger=ledger, clock=clock),
    )


def main(folder: Path, *, spares: bool) -> None:
    """The driver."""
    with led() as leash, ExitStack() as stack:
        ray_in_time(leash, lambda: stack.enter_context(local_ray(num_cpus=WORKERS)))
        from failsoft.training.ray_train import RaySettings, run_attempt

        settings = RaySettings(
            folder=folder,
            ledger=folder / "ledger.jsonl",
            workers=WORKERS,
            immediate_retries=_WITHOUT_END,
            spares=SparePolicy(per_worker=int(spares), after_s=0.0),  # the benchmark waits for them as it is
        )
        run_attempt(build_toy, folder, settings)


if __name__ == "__main__":
    from tests.benchmarks.recovery_failsoft import main as named_main  # so that workers can import what they are sent

    named_main(Path(sys.argv[1]), spares=sys.argv[2] == "spares")
