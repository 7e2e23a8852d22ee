"""The worker group of Ray Train, with each worker's process made ready in its main thread."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ray.train.backend import Backend
from ray.train.torch import TorchConfig

from failsoft.training.ray_settings import RaySettings
from failsoft.training.survival.fabric import FabricConfig
from failsoft.training.survival.station import Station, prepare

STATION = Station()
"""Of this worker process; what handles its signals must be there before its loop is."""


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


def group_config(settings: RaySettings) -> TorchConfig:
    """How the workers of an attempt find each other."""
    return _Group(
        backend="cpu:gloo,cuda:nccl" if settings.gpu else "gloo",
        timeout_s=settings.fabric.collective_timeout_s,
        fabric=settings.fabric,
    )


def _prepare(fabric: FabricConfig) -> None:
    prepare(STATION, fabric)
