"""The Ray that a process trains on: the cluster that it was submitted to, else a private one on this machine."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from failsoft.errors import ConfigError, NoRayError
from failsoft.local_ray import local_ray, settle_environment
from failsoft.training.survival.room import WorkerRange
from train_jobs.config import JobConfig

_KNOCK_S = 2.0


@contextmanager
def connected(config: JobConfig) -> Iterator[None]:
    """Be connected to Ray for the time of the block.

    Raises:
        NoRayError: the environment names a cluster, and there is none; or no private Ray came up.
        ConfigError: it names none, and this machine has too few GPUs; no other machine will come to a private Ray.
    """
    if not is_submitted(os.environ):
        with _private(config):
            yield
        return
    import ray  # noqa: PLC0415 -- only when there is a cluster to join

    try:
        ray.init(log_to_driver=False)
    except (ConnectionError, TimeoutError, ray.exceptions.RayError) as error:
        raise NoRayError(f"no Ray at {os.environ.get('RAY_ADDRESS', 'auto')}: {error}") from error
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _private(config: JobConfig) -> Iterator[None]:
    settle_environment()
    import ray  # noqa: PLC0415 -- after its environment
    from ray._private.utils import get_num_cpus  # noqa: PLC0415 -- the same; knows of containers' limits

    limits, threads = WorkerRange.of(config.workers), config.threads_per_worker
    with local_ray(num_cpus=private_workers(limits, int(get_num_cpus()), threads) * threads):
        gpus = int(ray.cluster_resources().get("GPU", 0.0)) if config.gpu else limits.least
        if gpus < limits.least:
            raise ConfigError(
                f"each worker, {limits.least} at least, is to have a GPU, and this machine has {gpus}; ask for fewer "
                "workers, train without --gpu, or name a cluster that has GPUs by RAY_ADDRESS"
            )
        yield


def private_workers(limits: WorkerRange, cores: int, threads: int) -> int:
    """Places of a Ray on this machine alone: for a fixed number of workers, and of a range what the cores hold."""
    return limits.most if limits.least == limits.most else max(limits.least, min(limits.most, cores // threads))


def is_submitted(environment: Mapping[str, str]) -> bool:
    """Whether the environment names a cluster to train on."""
    return "RAY_ADDRESS" in environment or "RAY_JOB_ID" in environment


def ray_answers(environment: Mapping[str, str]) -> bool:
    """Whether somebody listens where the environment says that Ray's head is; True where it says no host and port.

    Ray itself, asked to connect to a head that is gone, may end the process that asks.
    """
    host, colon, port = environment.get("RAY_ADDRESS", "").rpartition(":")
    if not colon or not port.isdecimal() or "/" in host:
        return True
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_KNOCK_S):
            return True
    except OSError:
        return False
