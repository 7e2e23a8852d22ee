"""Puts one rank's training loop together; runs on each worker."""

from __future__ import annotations

import torch
from torch.nn.parallel import DistributedDataParallel

from failsoft.artifacts.home import Home
from failsoft.health.clock import SystemClock
from failsoft.health.ledger import Ledger, Side
from failsoft.models.learning import make_optimizer, schedule
from failsoft.models.network import autocast_dtype, build
from failsoft.training.batches import GlobalBatches
from failsoft.training.breaker import Breaker, BreakerPolicy
from failsoft.training.checkpoint import Checkpoints, Deliver
from failsoft.training.chronicle import Desk
from failsoft.training.guard import GuardPolicy, StepGuard
from failsoft.training.loop import LoopPlan, TrainLoop
from failsoft.training.ranks import Ranks
from failsoft.training.state import TrainingState
from train_jobs.config import JobConfig
from train_jobs.workload import IntentNerTask, Workload, read_workload


def build_loop(config: JobConfig, ranks: Ranks, deliver: Deliver) -> TrainLoop:
    """This rank's loop, ready to run."""
    workload = read_workload(config)
    state, device = _trainee(config, workload), torch.device("cpu")
    shared = DistributedDataParallel(state.model) if ranks.world > 1 else state.model
    desk = _desk(config)
    breaker = Breaker(BreakerPolicy())
    state.breaker = breaker
    return TrainLoop(
        state=state,
        task=IntentNerTask(shared, workload, device),
        batches=GlobalBatches(
            num_samples=len(workload.train), global_batch=workload.recipe.batch_size, seed=config.seed
        ),
        plan=LoopPlan(
            total_batches=workload.total_batches,
            seed=config.seed,
            snapshot_every_steps=config.snapshot_every_steps,
            checkpoint_every_steps=config.checkpoint_every_steps,
        ),
        guard=StepGuard(
            model=state.model,
            optimizer=state.optimizer,
            scheduler=state.scheduler,
            policy=GuardPolicy(max_grad_norm=workload.recipe.max_grad_norm, autocast_dtype=autocast_dtype(device)),
            ranks=ranks,
        ),
        breaker=breaker,
        checkpoints=Checkpoints(
            store=Home.find(config.home).checkpoints(config.run, SystemClock()),
            identity=workload.identity,
            ranks=ranks,
            ledger=desk.ledger,
            deliver=deliver,
        ),
        desk=desk,
    )


def _trainee(config: JobConfig, workload: Workload) -> TrainingState:
    torch.manual_seed(config.seed)
    model = build(workload.network)
    optimizer = make_optimizer(model, workload.recipe)
    scheduler = schedule(optimizer, workload.recipe, workload.total_batches)
    return TrainingState(model=model, optimizer=optimizer, scheduler=scheduler)


def _desk(config: JobConfig) -> Desk:
    home, clock = Home.find(config.home), SystemClock()
    ledger = Ledger(home.ledger, clock, side=Side.TRAINING, subject=config.run)
    return Desk(folder=home.run(config.run), ledger=ledger, clock=clock, faults=config.faults)
