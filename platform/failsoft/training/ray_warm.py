"""Spare worker processes for Ray Train: warm ones stand by on each node, so that a restart need not load torch.

Once a group of workers has trained for a while, each worker has its node start one more process like itself
(:mod:`failsoft.training.ray_spare`). When a worker dies, Ray Train makes the next group, and Ray finds warm processes
for it. A spare that is missing costs nothing but the time that it would have saved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import ray
from ray._private.ray_constants import WORKER_PROCESS_SETUP_HOOK_ENV_VAR
from ray.train.v2._internal.constants import ENV_VARS_TO_PROPAGATE
from ray.train.v2._internal.execution.callback import WorkerGroupCallback

from failsoft.health.clock import Clock, SystemClock
from failsoft.training.progress import PositionMark
from failsoft.training.ray_settings import RaySettings, first_lines
from failsoft.training.ray_spare import HOOK, NEXT_HOOK, RPC_S, order_spares
from failsoft.training.survival.warmth import VARIABLE, Order, Script, variables

_LATE = (
    "failsoft.training.ray_train",
    "torch._dynamo",  # by the first optimizer and the first DDP
    "ray.train.v2._internal.execution.worker_group.worker",
    "ray.train.v2._internal.execution.checkpoint.sync_actor",
    "ray.data._internal.issue_detection.issue_detector_manager",
    "ray.tune.experiment",
    "ray._private.arrow_serialization",
    "pydantic.v1",
    "starlette.datastructures",
)
"""What a worker of Ray Train loads until its first step, much of it at first use (Ray 2.60, torch 2.13)."""
_HELPERS = 2
"""Actors that Ray Train makes anew beside each group of workers, on the controller's node (2.60: one for barriers, one
that looks out for preemptions). They come from the same spares, else their start takes the cores from the workers'."""
_LOOK_S = 0.5


@contextmanager
def warm_environment(modules: Sequence[str], settings: RaySettings) -> Iterator[dict[str, Any]]:
    """Have all processes of an attempt begun in the block share one runtime environment, so that any spare suits any.

    Args:
        modules: what the run's own code will load, by name.
        settings: of the run; without spares nothing is changed.

    Yields:
        The runtime environment of workers. Ray Train's controller gets the same one by way of this process's
        variables, as it gets Ray Train's own settings; what the controller makes inherits it.
    """
    if settings.spares.per_worker == 0:
        yield {}
        return
    every = tuple(sorted({*modules, *_LATE}))
    script = Script(modules=every, ledger=str(settings.ledger), run=settings.folder.name)
    shared = {WORKER_PROCESS_SETUP_HOOK_ENV_VAR: HOOK, VARIABLE: script.text()}
    theirs = _hook_of_the_job()
    shared |= {} if theirs is None else {NEXT_HOOK: theirs}
    ENV_VARS_TO_PROPAGATE.update(shared)
    with variables(shared):
        yield {"env_vars": shared}


class KeepsSpares(WorkerGroupCallback):
    """Has spares started for each group of workers, once it has trained for a while: before, they would delay it."""

    def __init__(self, settings: RaySettings, clock: Clock | None = None) -> None:
        self._settings = settings
        self._clock = SystemClock() if clock is None else clock
        self._group: Any = None
        self._began: int | None = None
        self._due_s: float | None = None
        self._next_s = 0.0

    def after_worker_group_training_start(self, worker_group: Any) -> None:
        """Called in the controller's process."""
        if self._settings.spares.per_worker > 0:
            self._group, self._began = worker_group, PositionMark(self._settings.folder).read()
            self._due_s = None

    def after_worker_group_poll_status(self, worker_group_status: Any) -> None:
        """Called in the controller's process at each poll; looks twice a second, for the file may lie far away."""
        now_s = self._clock.monotonic_s()
        if self._group is None or now_s < self._next_s:
            return
        self._next_s = now_s + _LOOK_S
        if self._due_s is None and PositionMark(self._settings.folder).read() != self._began:
            self._due_s = now_s + self._settings.spares.after_s
        if self._due_s is not None and now_s >= self._due_s:
            group, self._group = self._group, None
            self._order(group)

    def before_worker_group_shutdown(self, worker_group: Any) -> None:
        """Called in the controller's process."""
        self._group = None

    def _order(self, group: Any) -> None:
        workers, ledger = group.get_workers(), self._settings.open_ledger()
        try:
            orders = self._orders(workers)
        except Exception as error:  # noqa: BLE001 -- Ray ends a run whose callback raises, and this is but its insurance
            ledger.record("spares_missing", first_lines(error), workers=len(workers))
            return
        ledger.record("spares_ordered", orders[0].why, count=sum(order.count for order in orders), workers=len(workers))

    def _orders(self, workers: Sequence[Any]) -> list[Order]:
        policy = self._settings.spares
        there = Counter(worker.metadata.node_id for worker in workers)
        asked = [
            worker.execute_async(
                order_spares, policy, there[worker.metadata.node_id] * policy.per_worker, policy.per_worker
            )
            for worker in workers
        ]
        return [*ray.get(asked, timeout=RPC_S), order_spares(policy, _HELPERS, _HELPERS)]


def _hook_of_the_job() -> str | None:
    given = ray.get_runtime_context().runtime_env.get("env_vars", {}).get(WORKER_PROCESS_SETUP_HOOK_ENV_VAR)
    return None if given in {None, HOOK} else str(given)
