"""Puts one rank's training loop together; runs on each worker."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch.amp.grad_scaler import GradScaler
from torch.nn.parallel import DistributedDataParallel

from failsoft.artifacts.home import Home
from failsoft.artifacts.store import ArtifactStore
from failsoft.health.aside import Aside
from failsoft.health.clock import SystemClock
from failsoft.health.ledger import Ledger, Side
from failsoft.models.learning import make_optimizer, schedule
from failsoft.models.network import autocast_dtype, build
from failsoft.training.batches import GlobalBatches
from failsoft.training.breaker import Breaker, BreakerPolicy
from failsoft.training.checkpoints.checkpoint import Checkpoints, Deliver
from failsoft.training.checkpoints.mirror import Mirror, mirror_behind
from failsoft.training.checkpoints.remote_note import remote_of_run
from failsoft.training.checkpoints.writer import writer_behind
from failsoft.training.chronicle import Desk
from failsoft.training.guard import GuardPolicy, StepGuard
from failsoft.training.loop import LoopPlan, TrainLoop
from failsoft.training.ranks import Ranks
from failsoft.training.snapshots.snapshot import SnapshotPolicy
from failsoft.training.state import TrainingState
from failsoft.training.survival.room import WorkerRange
from train_jobs.config import JobConfig
from train_jobs.samples import feed_of
from train_jobs.validation import validator_of
from train_jobs.workload import IntentNerTask, Workload, read_workload


def build_loop(config: JobConfig, ranks: Ranks, deliver: Deliver) -> TrainLoop:
    """This rank's loop, ready to run."""
    workload = read_workload(config)
    device = torch.device("cuda" if config.gpu else "cpu")
    breaker = Breaker(BreakerPolicy())
    state = _state(config, workload, device, breaker)
    desk = desk_of(config)
    store = Home.find(config.home).checkpoints(config.run, SystemClock())
    shared = _shared(state, ranks)
    batches = GlobalBatches(num_samples=workload.num_samples, global_batch=workload.recipe.batch_size, seed=config.seed)
    return TrainLoop(
        state=state,
        task=IntentNerTask(shared, workload, device, feed_of(workload, batches, ranks, desk)),
        batches=batches,
        plan=plan_of(config, workload.total_batches),
        guard=_guard(shared, state, workload, ranks, config),
        breaker=breaker,
        checkpoints=Checkpoints(
            store=store,
            identity=workload.identity,
            ranks=ranks,
            ledger=desk.ledger,
            deliver=deliver,
            writer=writer_behind(store, desk.clock, rules=config.keeping()),
            mirror=mirror_of(config, store),
        ),
        desk=desk,
        validation=validator_of(config, workload, state, ranks, desk, batches_per_epoch=batches.batches_per_epoch),
    )


def mirror_of(
    config: JobConfig, store: ArtifactStore, *, path: str | None = None, filesystem: Any = None
) -> Mirror | None:
    """Copies checkpoints to the remote store, where one is asked for.

    Args:
        config: the job; its ``remote`` is an address.
        store: the local checkpoints.
        path: instead of an address, a path on ``filesystem``.
        filesystem: a ``pyarrow.fs.FileSystem``.
    """
    where = config.remote if path is None else path
    if where is None:
        return None
    return mirror_behind(
        store,
        remote_of_run(where, config.run),
        SystemClock(),
        filesystem=filesystem,
        rules=config.keeping(),
        policy=config.mirroring(),
        seed=config.seed,
    )


def _state(config: JobConfig, workload: Workload, device: torch.device, breaker: Breaker) -> TrainingState:
    torch.manual_seed(config.seed)
    model = build(workload.network).to(device)
    optimizer = make_optimizer(model, workload.recipe)
    return TrainingState(
        model=model,
        optimizer=optimizer,
        scheduler=schedule(optimizer, workload.recipe, workload.total_batches),
        scaler=GradScaler(device.type) if autocast_dtype(device) is torch.float16 else None,
        breaker=breaker,
    )


def _shared(state: TrainingState, ranks: Ranks) -> torch.nn.Module:
    """The model as the loss sees it; with several ranks its backward pass averages the gradients."""
    return DistributedDataParallel(state.model) if ranks.world > 1 else state.model


def _guard(
    shared: torch.nn.Module, state: TrainingState, workload: Workload, ranks: Ranks, config: JobConfig
) -> StepGuard:
    device = next(state.model.parameters()).device
    policy = GuardPolicy(
        max_grad_norm=workload.recipe.max_grad_norm,
        autocast_dtype=autocast_dtype(device),
        loss_spikes=config.loss_spikes,
        relief=config.relief,
    )
    return StepGuard(
        model=shared,  # in its wrapper, so that ranks can work in smaller pieces when memory is short
        optimizer=state.optimizer,
        scheduler=state.scheduler,
        scaler=state.scaler,
        policy=policy,
        ranks=ranks,
    )


def plan_of(config: JobConfig, total_batches: int) -> LoopPlan:
    """How long, and how often what."""
    return LoopPlan(
        total_batches=total_batches,
        seed=config.seed,
        snapshot_every_steps=config.snapshot_every_steps,
        snapshots=_snapshots(config),
        memory=config.memory,
        full_world=WorkerRange.of(config.workers).most,
        pace=config.pace,
        pace_remedy=config.pace_remedy,
        poisoned=config.poisoned,
        checkpoint_every_steps=config.checkpoint_every_steps,
        checkpoint_every_s=config.checkpoint_every_s,
        node_mtbf_s=config.node_mtbf_s,
        checkpoint_at_epoch_end=config.checkpoint_at_epoch_end,
    )


def _snapshots(config: JobConfig) -> SnapshotPolicy:
    policy = SnapshotPolicy(where=config.snapshot_place)
    return policy if config.snapshots_outlive else replace(policy, host_folder=None)


def desk_of(config: JobConfig) -> Desk:
    """Where the run writes."""
    home, clock = Home.find(config.home), SystemClock()
    ledger = Ledger(home.ledger, clock, side=Side.TRAINING, subject=config.run, aside=Aside(clock))
    return Desk(
        folder=home.run(config.run),
        ledger=ledger,
        clock=clock,
        faults=config.faults,
        letters=config.letters,
        record_consumed=config.record_consumed,
    )
