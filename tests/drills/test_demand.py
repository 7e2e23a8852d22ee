"""A run that waits for workers is seen by what scales Ray's cluster, and holds nothing meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from failsoft.health.clock import SystemClock
from failsoft.training.ray_demand import Demand
from failsoft.training.ray_room import rooms_here
from failsoft.training.ray_settings import RaySettings


def waited_for() -> list[dict[str, float]]:
    """What an autoscaler would read: bundles of groups that have no room."""
    import ray
    from ray._raylet import GcsClient  # type: ignore[attr-defined]  # compiled; its names have no stubs
    from ray.autoscaler.v2.sdk import get_cluster_resource_state

    view: Any = get_cluster_resource_state(GcsClient(address=ray.get_runtime_context().gcs_address))
    gangs = [gang.requests for gang in view.pending_gang_resource_requests]
    return [dict(request.resources_bundle) for requests in gangs for request in requests]


def free_cpus() -> float:
    rooms = rooms_here()
    assert rooms is not None
    return sum(room.free.get("CPU", 0.0) for room in rooms)


def until(true: Any, *, within_s: float = 120.0) -> None:
    clock = SystemClock()
    end_s = clock.monotonic_s() + within_s
    while not true():
        assert clock.monotonic_s() < end_s
        clock.sleep_s(0.1)


@pytest.mark.drill
def test_workers_that_are_waited_for_are_demanded_and_room_that_comes_is_given_back(
    ray_local: None, tmp_path: Path
) -> None:
    import ray

    cpus = int(ray.cluster_resources()["CPU"])
    until(lambda: free_cpus() == cpus)
    settings = RaySettings(folder=tmp_path, ledger=tmp_path / "l", workers=1, threads_per_worker=cpus)
    holder = ray.util.placement_group([{"CPU": 1.0}])
    assert holder.wait(60)
    demand = Demand()
    assert not demand.wish(settings)
    until(lambda: waited_for() == [{"CPU": float(cpus)}])
    assert not demand.wish(settings)
    ray.util.remove_placement_group(holder)
    until(lambda: demand.wish(settings))
    until(lambda: waited_for() == [] and free_cpus() == cpus)
    demand.wish(settings)
    demand.withdraw()
    until(lambda: waited_for() == [] and free_cpus() == cpus)
