"""The loop on Ray Train: worker groups, one immediate retry and preemption inside Ray, everything else outside.

Ray's own list of checkpoints is not trusted: it is written in place, and a torn one stops every later start. The run's
checkpoints have manifests of their own, so the list is thrown away before each attempt, and restoring never asks Ray.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import ray.exceptions
import ray.train
import torch
import torch.distributed as dist
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from ray.train.v2._internal.exceptions import RayTrainError, WorkerGroupStartupTimeoutError
from ray.train.v2._internal.execution.context import get_train_context

from failsoft.errors import DriverLostError, TrainingError
from failsoft.health.clock import SystemClock
from failsoft.training.checkpoints.checkpoint import Deliver
from failsoft.training.loop import TrainLoop
from failsoft.training.progress import PositionMark
from failsoft.training.ranks import Ranks, ranks_here
from failsoft.training.ray_eyes import RoomLostError, SecondLine, SeesDeaths
from failsoft.training.ray_group import STATION, group_config
from failsoft.training.ray_leftovers import sweep_leftovers
from failsoft.training.ray_reports import RayReports
from failsoft.training.ray_settings import RaySettings, first_lines
from failsoft.training.ray_trouble import lost_to_ray
from failsoft.training.ray_warm import KeepsSpares, warm_environment
from failsoft.training.survival.fabric import check_environment
from failsoft.training.survival.notice import Word
from failsoft.training.survival.room import ROOM_LOST
from failsoft.training.survival.station import Orders, watched
from failsoft.training.survival.supervise import CONTROLLER_FAILED, CONTROLLER_LOST

__all__ = ["Build", "RaySettings", "is_bug", "kind_of", "run_attempt"]

Build = Callable[[Any, Ranks, Deliver], TrainLoop]
"""Makes this rank's loop from the job's config; importable by name on every worker."""

_DRAIN_MARGIN_S = 2.0
_RAY_LIST_OF_CHECKPOINTS = "checkpoint_manager_snapshot.json"
_DRIVER_ENVIRONMENT = {
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.1",  # the poll that sees a dead worker, and that each report waits for
    "RAY_TRAIN_PREEMPTION_POLL_INTERVAL_S": "1",
    "RAY_TRAIN_WORKER_HEALTH_CHECK_TIMEOUT_S": "60",
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "15",  # only for placing workers that fitted a moment ago
}


def run_attempt(build: Build, config: Any, settings: RaySettings) -> str | None:
    """One attempt on the Ray that this process is connected to.

    Returns:
        None when the workers came to an end of their own (finished, left, or stopped with a diagnosis), else what ended
        them.

    Raises:
        ConfigError: a variable of the network in this environment can't be meant as it is.
        DriverLostError: Ray failed in another way than by losing workers or their controller.
    """
    check_environment(os.environ)
    for name, value in _DRIVER_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    rays_list = settings.folder / _RAY_LIST_OF_CHECKPOINTS
    try:
        with lost_to_ray("the attempt"), warm_environment([build.__module__], settings) as environment:
            if rays_list.exists():  # storage that became read-only refuses to remove even what is not there
                rays_list.unlink(missing_ok=True)
            sweep_leftovers()  # also of drivers before this one, which had no time to
            return _fitted(_trainer(build, config, settings, environment), settings)
    except DriverLostError as error:
        settings.open_ledger().record(CONTROLLER_LOST, first_lines(error))
        raise


def _fitted(trainer: TorchTrainer, settings: RaySettings) -> str | None:
    try:
        trainer.fit()
    except ray.exceptions.RayActorError as error:  # Ray Train's controller; Ray ends its workers by SIGTERM
        settings.open_ledger().record(CONTROLLER_LOST, first_lines(error))
        sweep_leftovers()
        return first_lines(error)
    except ray.train.TrainingFailedError as error:
        failure = getattr(error, "controller_failure", None)
        if isinstance(failure, WorkerGroupStartupTimeoutError):
            settings.open_ledger().record(ROOM_LOST, first_lines(error), workers=settings.workers)
        elif failure is not None and is_bug(failure):
            said = f"{type(failure).__name__}: {first_lines(failure)}"
            position = PositionMark(settings.folder).read() or 0
            settings.open_ledger().record(CONTROLLER_FAILED, said, error=said, position=position)
        return first_lines(error)
    return None


def is_bug(failure: BaseException) -> bool:
    """Whether what ended Ray's controller, but not its process, is an error of code: of ours in there, or of its own.

    What it raises of workers, places and calls that fail is none; nor are surroundings that were away.
    """
    if isinstance(failure, ray.exceptions.RayTaskError):  # code of ours that it ran on a worker
        return is_bug(failure.cause)
    if isinstance(failure, ray.exceptions.RayError | RayTrainError | RoomLostError) or not isinstance(
        failure, Exception
    ):
        return False
    return kind_of(failure) == "worker_failed"


def _trainer(build: Build, config: Any, settings: RaySettings, environment: dict[str, Any]) -> TorchTrainer:
    return TorchTrainer(
        _work,
        train_loop_config={"build": build, "config": config, "settings": settings},
        torch_config=group_config(settings),
        scaling_config=ScalingConfig(  # type: ignore[call-arg]  # ray.train hands out its V2 class at run time
            num_workers=settings.workers,
            use_gpu=settings.gpu,
            resources_per_worker=settings.need(),
            label_selector=settings.selector(),
        ),
        run_config=RunConfig(
            name=settings.folder.name,
            storage_path=str(settings.folder.parent),
            callbacks=[SeesDeaths(settings), SecondLine(settings), KeepsSpares(settings)],  # type: ignore[list-item]  # as above
            worker_runtime_env=environment,
            failure_config=FailureConfig(  # type: ignore[call-arg]  # as above
                max_failures=settings.immediate_retries, max_preemption_failures=-1, controller_failure_limit=0
            ),
        ),
    )


def _work(job: Mapping[str, Any]) -> None:
    """What each worker runs. An error that all ranks agree on ends the attempt without a retry; others are Ray's."""
    settings: RaySettings = job["settings"]
    torch.set_num_threads(settings.threads_per_worker)
    ranks = ranks_here()
    orders = Orders(
        folder=settings.folder,
        ledger=settings.open_ledger(),
        clock=SystemClock(),
        watch=settings.watch,
        notice=settings.notice,
    )
    reports = RayReports()
    try:
        with watched(STATION, orders, ranks, overhear=_draining) as connected:
            connected(lambda noticed: job["build"](job["config"], noticed, reports)).run()
    except TrainingError:  # a diagnosis, or a notice: the same on every rank, and already in the ledger
        return
    except Exception as error:  # the worker's outermost frame: note what ended it, then let Ray see it
        _note(error, settings, ranks)
        raise
    finally:
        reports.end()


def _note(error: Exception, settings: RaySettings, ranks: Ranks) -> None:
    """Leave the error in the ledger: by it the supervisor tells a bug from a fault."""
    ledger = settings.open_ledger()
    said = f"{type(error).__name__}: {first_lines(error)}"
    ledger.record(kind_of(error), said, error=said, position=PositionMark(settings.folder).read() or 0, rank=ranks.rank)


def kind_of(error: Exception) -> str:
    """The ledger's word for what ended a worker; only a ``worker_failed`` that comes back can be a bug in the code.

    A peer, a disk, a network or memory that was away may well be away again for the immediate retry.
    """
    by_its_words = isinstance(error, RuntimeError) and ("gloo" in str(error).lower() or "by peer" in str(error))
    if isinstance(error, dist.DistError) or by_its_words:  # gloo's own errors have no kind of theirs
        return "peer_lost"
    surroundings = OSError | MemoryError | torch.OutOfMemoryError
    return "surroundings_failed" if isinstance(error, surroundings) else "worker_failed"


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
