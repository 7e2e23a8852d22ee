"""The Ray that a process trains on: the cluster that it was submitted to, else a private one on this machine."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from failsoft.errors import NoRayError
from failsoft.local_ray import local_ray
from failsoft.training.survival.room import WorkerRange
from train_jobs.config import JobConfig

_KNOCK_S = 2.0


@contextmanager
def connected(config: JobConfig) -> Iterator[None]:
    """Be connected to Ray for the time of the block.

    Raises:
        NoRayError: the environment names a cluster, and there is none.
    """
    if not is_submitted(os.environ):
        with local_ray(num_cpus=WorkerRange.of(config.workers).most * config.threads_per_worker):
            yield
        return
    import ray  # noqa: PLC0415 -- only when there is a cluster to join

    try:
        ray.init(log_to_driver=False)
    except (ConnectionError, TimeoutError) as error:
        raise NoRayError(f"no Ray at {os.environ.get('RAY_ADDRESS', 'auto')}: {error}") from error
    try:
        yield
    finally:
        ray.shutdown()


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
