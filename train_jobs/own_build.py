"""A task of one's own, put together: its loop on a worker, and what holds its workers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from failsoft.artifacts.home import Home
from failsoft.artifacts.remote_place import Place, place_on
from failsoft.artifacts.store import Artifact
from failsoft.health.clock import Clock, SystemClock
from failsoft.training.batches import GlobalBatches
from failsoft.training.breaker import Breaker, BreakerPolicy
from failsoft.training.checkpoints.checkpoint import Checkpoints, Deliver, newest_healthy, read_tensors
from failsoft.training.checkpoints.remote_note import remote_of_run
from failsoft.training.checkpoints.writer import writer_behind
from failsoft.training.chronicle import Desk
from failsoft.training.guard import GuardPolicy, StepGuard
from failsoft.training.loop import TrainLoop
from failsoft.training.ranks import Ranks
from failsoft.training.ray_train import run_attempt
from failsoft.training.sharding import has_shards
from failsoft.training.state import TrainingState, load_model_tensors
from failsoft.training.validation import Validator
from train_jobs.build import desk_of, mirror_of, plan_of
from train_jobs.job import HereDriver, settings_of, sweep
from train_jobs.own import Learning, OwnJob

__all__ = ["OwnDriver", "build_own", "final_of", "load_model"]

final_of = newest_healthy


def load_model(model: nn.Module, checkpoint: Artifact) -> nn.Module:
    """Put a checkpoint's weights and buffers into a model of the same shape, ready to answer.

    Raises:
        IncompatibleArtifactError: the model has other tensors.
        DamagedArtifactError: bytes are not what was written.
    """
    load_model_tensors(model, read_tensors(checkpoint))
    return model.eval()


class OwnDriver(HereDriver):
    """Holds the workers of an own task in this process."""

    def __init__(self, job: OwnJob, clock: Clock) -> None:
        super().__init__(job.config, clock)
        self._job = job

    def start(self) -> None:
        """Nothing is to be prepared; what an attempt before has left is swept."""
        self.look_at_remote()
        sweep()

    def _find_remote(self) -> Callable[[], Place] | None:
        path, filesystem = self._job.storage_path, self._job.storage_filesystem
        if path is None:
            return super()._find_remote()
        return lambda: place_on(filesystem, remote_of_run(path, self._job.config.run))

    def attempt(self, workers: int, excluded: frozenset[str]) -> str | None:
        """One attempt of Ray Train."""
        settings = replace(settings_of(self._job.config), workers=workers, excluded=excluded)
        return run_attempt(build_own, self._job, settings)


def build_own(job: OwnJob, ranks: Ranks, deliver: Deliver) -> TrainLoop:
    """This rank's loop, ready to run; also without Ray."""
    config, clock = job.config, SystemClock()
    torch.manual_seed(config.seed)
    learning = job.learn(torch.device("cuda" if config.gpu else "cpu"))
    breaker, desk = Breaker(BreakerPolicy()), desk_of(config)
    state = TrainingState(
        model=learning.model, optimizer=learning.optimizer, scheduler=learning.scheduler, breaker=breaker
    )
    wraps = ranks.world > 1 and not has_shards(state.model)  # what fully_shard has cut brings gradients together itself
    shared = DistributedDataParallel(state.model) if wraps else state.model
    store = Home.find(config.home).checkpoints(config.run, clock)
    batches = GlobalBatches(num_samples=job.num_samples, global_batch=job.global_batch, seed=config.seed)
    return TrainLoop(
        state=state,
        task=learning.task(shared),
        batches=batches,
        plan=plan_of(config, job.total_batches),
        guard=_guard(job, learning, shared, ranks),
        breaker=breaker,
        checkpoints=Checkpoints(
            store=store,
            identity=job.whole_identity(),
            ranks=ranks,
            ledger=desk.ledger,
            deliver=deliver,
            writer=writer_behind(store, clock, rules=config.keeping()),
            mirror=mirror_of(config, store, path=job.storage_path, filesystem=job.storage_filesystem),
        ),
        desk=desk,
        validation=_validator(job, learning, state, ranks, desk),
    )


def _guard(job: OwnJob, learning: Learning, shared: nn.Module, ranks: Ranks) -> StepGuard:
    policy = GuardPolicy(
        max_grad_norm=learning.max_grad_norm, loss_spikes=job.config.loss_spikes, relief=job.config.relief
    )
    optimizer, scheduler = learning.optimizer, learning.scheduler
    return StepGuard(model=shared, optimizer=optimizer, scheduler=scheduler, policy=policy, ranks=ranks)


def _validator(job: OwnJob, learning: Learning, state: TrainingState, ranks: Ranks, desk: Desk) -> Validator | None:
    plan = job.config.validation
    if not plan.looks or learning.validation is None:
        return None
    per_epoch = GlobalBatches(num_samples=job.num_samples, global_batch=job.global_batch, seed=0).batches_per_epoch
    return Validator(learning.validation, state, ranks, desk, plan, batches_per_epoch=per_epoch)
