"""The loop on Ray Train: worker groups, one immediate retry and preemption inside Ray, everything else outside.

Ray's own list of checkpoints is not trusted: it is written in place, and a torn one stops every later start. The run's
checkpoints have manifests of their own, so the list is thrown away before each attempt, and restoring never asks Ray.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray.exceptions
import ray.train
import torch
import torch.distributed as dist
from ray.train import CheckpointUploadMode, FailureConfig, RunConfig, ScalingConfig, UserCallback
from ray.train.backend import Backend
from ray.train.torch import TorchConfig, TorchTrainer
from ray.train.v2._internal.execution.callback import WorkerGroupCallback
from ray.train.v2._internal.execution.context import get_train_context
from ray.train.v2.api.exceptions import WorkerGroupError

from failsoft.errors import ConfigError, TrainingError
from failsoft.health.clock import SystemClock
from failsoft.health.ledger import Ledger, Side
from failsoft.training.checkpoints.checkpoint import Deliver
from failsoft.training.loop import TrainLoop
from failsoft.training.progress import PositionMark
from failsoft.training.ranks import Ranks, ranks_here
from failsoft.training.survival.fabric import FabricConfig, check_environment
from failsoft.training.survival.notice import NoticePolicy, Word
from failsoft.training.survival.station import Orders, Station, prepare, watched
from failsoft.training.survival.watch_policy import Stillness, WatchPolicy

Build = Callable[[Any, Ranks, Deliver], TrainLoop]
"""Makes this rank's loop from the job's config; importable by name on every worker."""

_STATION = Station()
"""Of this worker process; what handles its signals must be there before its loop is."""
_DRAIN_MARGIN_S = 2.0
_RAY_LIST_OF_CHECKPOINTS = "checkpoint_manager_snapshot.json"
_DRIVER_ENVIRONMENT = {
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.1",  # the poll that sees a dead worker, and that each report waits for
    "RAY_TRAIN_PREEMPTION_POLL_INTERVAL_S": "1",
    "RAY_TRAIN_WORKER_HEALTH_CHECK_TIMEOUT_S": "60",
}


class _SeesDeaths(UserCallback):
    """Says in the ledger when Ray's controller has seen workers die: from here on a restart is under way."""

    def __init__(self, ledger: Path, run: str) -> None:
        self._ledger = ledger
        self._run = run

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
        """Called in the controller's process, before it starts others."""
        ledger = Ledger(self._ledger, SystemClock(), side=Side.TRAINING, subject=self._run)
        why = next((_first_lines(error) for error in worker_exceptions.values()), "")
        ledger.record("workers_lost", why, ranks=sorted(worker_exceptions))


class _SecondLine(WorkerGroupCallback):
    """Has a group of workers started again that stands still although no watchdog of its own has ended it."""

    def __init__(self, settings: RaySettings) -> None:
        self._settings = settings
        self._stillness = Stillness(settings.watch.silence_s)
        self._next_s = 0.0

    def before_worker_group_start(self, worker_group_context: Any) -> None:
        """Called in the controller's process; another group, another patience."""
        self._stillness = Stillness(self._settings.watch.silence_s)

    def after_worker_group_poll_status(self, worker_group_status: Any) -> None:
        """Called in the controller's process at each poll; looks once a second, for the file may lie far away."""
        now_s = SystemClock().monotonic_s()
        if now_s < self._next_s:
            return
        self._next_s = now_s + 1.0
        position = PositionMark(self._settings.folder).read()
        if self._stillness.look(position, now_s):
            limit_s = self._settings.watch.silence_s
            why = f"no batch began for {limit_s:g} s after batch {position}, and no watchdog said so"
            _ledger(self._settings).record("hang", why, position=position, by="controller")
            raise WorkerGroupError(why, dict.fromkeys(range(self._settings.workers), TimeoutError(why)))


@dataclass(frozen=True, kw_only=True)
class RaySettings:
    """How a run sits on a Ray cluster."""

    folder: Path
    """The run's folder; on storage that all nodes share when there are several."""
    ledger: Path
    workers: int = 1
    threads_per_worker: int = 1
    """Threads of torch, and CPUs asked of Ray, for each worker."""
    gpu: bool = False
    """One GPU for each worker."""
    immediate_retries: int = 1
    """Restarts of the worker group by Ray itself, at once; later failures go to the supervisor, which waits."""
    fabric: FabricConfig = field(default_factory=FabricConfig)
    """The network between workers, and how long it may be silent."""
    watch: WatchPolicy = field(default_factory=WatchPolicy)
    """How long a worker may stand still."""
    notice: NoticePolicy = field(default_factory=NoticePolicy)
    """How long a worker has to leave."""

    def __post_init__(self) -> None:
        """Refuse a run without workers."""
        for name in ("workers", "threads_per_worker"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; use 1 or more")


def run_attempt(build: Build, config: Any, settings: RaySettings) -> str | None:
    """One attempt on the Ray that this process is connected to.

    Returns:
        None when the workers came to an end of their own (finished, left, or stopped with a diagnosis), else what ended
        them.

    Raises:
        ConfigError: a variable of the network in this environment can't be meant as it is.
    """
    check_environment(os.environ)
    for name, value in _DRIVER_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    (settings.folder / _RAY_LIST_OF_CHECKPOINTS).unlink(missing_ok=True)
    trainer = TorchTrainer(
        _work,
        train_loop_config={"build": build, "config": config, "settings": settings},
        torch_config=_Group(
            backend="cpu:gloo,cuda:nccl" if settings.gpu else "gloo",
            timeout_s=settings.fabric.collective_timeout_s,
            fabric=settings.fabric,
        ),
        scaling_config=ScalingConfig(
            num_workers=settings.workers,
            use_gpu=settings.gpu,
            resources_per_worker={"CPU": settings.threads_per_worker} | ({"GPU": 1} if settings.gpu else {}),
        ),
        run_config=RunConfig(
            name=settings.folder.name,
            storage_path=str(settings.folder.parent),
            callbacks=[_SeesDeaths(settings.ledger, settings.folder.name), _SecondLine(settings)],  # type: ignore[list-item]  # as below
            failure_config=FailureConfig(  # type: ignore[call-arg]  # ray.train hands out its V2 class at run time
                max_failures=settings.immediate_retries, max_preemption_failures=-1, controller_failure_limit=5
            ),
        ),
    )
    try:
        trainer.fit()
    except (ray.train.TrainingFailedError, ray.exceptions.RayActorError) as error:
        return _first_lines(error)
    return None


def _work(job: Mapping[str, Any]) -> None:
    """What each worker runs. An error that all ranks agree on ends the attempt without a retry; others are Ray's."""
    settings: RaySettings = job["settings"]
    torch.set_num_threads(settings.threads_per_worker)
    ranks = ranks_here()
    orders = Orders(
        folder=settings.folder,
        ledger=_ledger(settings),
        clock=SystemClock(),
        watch=settings.watch,
        notice=settings.notice,
    )
    try:
        with watched(_STATION, orders, ranks, overhear=_draining) as connected:
            connected(lambda noticed: job["build"](job["config"], noticed, _deliver_through_ray)).run()
    except TrainingError:  # a diagnosis, or a notice: the same on every rank, and already in the ledger
        return
    except Exception as error:  # the worker's outermost frame: note what ended it, then let Ray see it
        _note(error, settings, ranks)
        raise


def _deliver_through_ray(published: Path | None, metrics: Mapping[str, float]) -> None:
    """Tell Ray of a checkpoint that is published already; all ranks together, rank 0 with its folder.

    NO_UPLOAD takes the folder as it is, so nobody waits for a disk: the call costs a barrier, and the controller picks
    the report up at its next poll. (SYNC holds the training for the write; ASYNC kills the run when the write fails.)
    Ray removes checkpoints of its list only to keep a number of them (``num_to_keep``), which this run never sets: our
    rules of keeping are the only ones that remove.
    """
    checkpoint = None if published is None else ray.train.Checkpoint(str(published))
    ray.train.report(dict(metrics), checkpoint=checkpoint, checkpoint_upload_mode=CheckpointUploadMode.NO_UPLOAD)


def _ledger(settings: RaySettings) -> Ledger:
    return Ledger(settings.ledger, SystemClock(), side=Side.TRAINING, subject=settings.folder.name)


def _note(error: Exception, settings: RaySettings, ranks: Ranks) -> None:
    """Leave the error in the ledger: by it the supervisor tells a bug from a fault."""
    ledger = _ledger(settings)
    said = f"{type(error).__name__}: {_first_lines(error)}"
    ledger.record(kind_of(error), said, error=said, position=PositionMark(settings.folder).read() or 0, rank=ranks.rank)


def kind_of(error: Exception) -> str:
    """The ledger's word for what ended a worker; only a ``worker_failed`` that comes back can be a bug in the code.

    A peer, a disk, a network or memory that was away may well be away again for the immediate retry.
    """
    if isinstance(error, dist.DistError) or "gloo" in str(error).lower() or "by peer" in str(error):
        return "peer_lost"
    surroundings = OSError | MemoryError | torch.OutOfMemoryError
    return "surroundings_failed" if isinstance(error, surroundings) else "worker_failed"


class _Prepared(Backend):
    """Torch's own backend, after each worker was prepared in its main thread: later is too late for both.

    A process group reads its environment when it is made, and only the main thread may handle signals, while Ray runs
    the training in another.
    """

    share_cuda_visible_devices = True

    def on_start(self, worker_group: Any, backend_config: Any) -> None:
        """Called in the controller's process."""
        worker_group.execute(_prepare, backend_config.fabric)
        TorchConfig().backend_cls().on_start(worker_group, backend_config)

    def on_training_start(self, worker_group: Any, backend_config: Any) -> None:
        """Called in the controller's process."""
        TorchConfig().backend_cls().on_training_start(worker_group, backend_config)

    def on_shutdown(self, worker_group: Any, backend_config: Any) -> None:
        """Called in the controller's process."""
        TorchConfig().backend_cls().on_shutdown(worker_group, backend_config)


@dataclass
class _Group(TorchConfig):
    fabric: FabricConfig = field(default_factory=FabricConfig)

    @property
    def backend_cls(self) -> type[Backend]:
        return _Prepared


def _prepare(fabric: FabricConfig) -> None:
    prepare(_STATION, fabric)


def _draining() -> Word | None:
    """Ray's notice that a node of ours will be taken away, as this worker was told it.

    The public ``ray.train.get_preemption_info()`` is a collective on each call, and reports use the same meeting point;
    what it hands out lies in the worker already (Ray 2.60).
    """
    info = get_train_context().preemption_context.preemption_info
    if info is None:
        return None
    why = f"Ray drains {', '.join(node[:12] for node in info.preempted_node_ids)}"
    if info.deadline_ms is None:
        return Word(why=why)
    return Word(why=why, grace_s=max(1.0, info.deadline_ms / 1000.0 - SystemClock().wall_s() - _DRAIN_MARGIN_S))


def _first_lines(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " | ".join(lines[:4])[:600] or type(error).__name__
