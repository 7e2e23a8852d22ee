"""A Ray of a head without CPUs and some nodes of one CPU each, and ways to break it; never joined by the test."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from failsoft.health.clock import SystemClock
from tests.conftest import node_in_time

QUICK_HEARTBEATS = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_health_check_timeout_ms": "10000",
}
"""Read by the head; Ray's defaults find a dead node after 15 s. One that is dead refuses at once; one that answers
late, on a machine that is busy, is not dead."""
_STORE = {"object_store_memory": 96 * 1024 * 1024}
_LOOK_S = 0.05


class PrivateCluster:
    """One head and its nodes."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        head: dict[str, Any] = {"num_cpus": 0, "include_dashboard": False} | _STORE
        self._cluster: Any = Cluster(initialize_head=True, head_node_args=head)
        self.nodes: list[Any] = []

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    def environment(self) -> dict[str, str]:
        """For a process that trains here."""
        return os.environ | {"RAY_ADDRESS": self.address, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}

    def add_node(self) -> Any:
        """One more."""
        return node_in_time(self._added)

    def _added(self) -> Any:
        node = self._cluster.add_node(num_cpus=1, **_STORE)
        self.nodes.append(node)
        return node

    def kill_node(self, node: Any) -> None:
        """SIGKILL to its daemons; its workers end themselves."""
        self.nodes.remove(node)
        self._cluster.remove_node(node, allow_graceful=False)

    def workers_of(self, node: Any) -> list[int]:
        """Processes of Ray Train's workers on this node."""
        daemon = node.all_processes["raylet"][0].process.pid
        return [pid for pid in _children(daemon) if "RayTrainWorker" in _title(pid)]

    def workers(self) -> list[int]:
        return [pid for node in self.nodes for pid in self.workers_of(node)]

    def controllers(self) -> list[int]:
        """Processes of Ray Train's controllers; Ray pins them to the node of the driver, which is the head."""
        return self._on_head("TrainController")

    def cleaners(self) -> list[int]:
        """Processes that Ray Train keeps to remove what a dead controller leaves; on the head as well."""
        return self._on_head("PlacementGroupCleaner")

    def _on_head(self, title: str) -> list[int]:
        daemon = self._cluster.head_node.all_processes["raylet"][0].process.pid
        return [pid for pid in _children(daemon) if title in _title(pid)]

    def shut_down(self) -> None:
        self._cluster.shutdown()


@contextmanager
def private_cluster(nodes: int, settings: Mapping[str, str] = QUICK_HEARTBEATS) -> Iterator[PrivateCluster]:
    """For the time of the block."""
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        cluster = PrivateCluster()
        try:
            for _ in range(nodes):
                cluster.add_node()
            yield cluster
        finally:
            cluster.shut_down()
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def strike(pid: int) -> bool:
    """SIGKILL; False when it is gone already."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def wait_for(holds: Any, what: str, patience_s: float = 600.0) -> Any:
    """What ``holds()`` gives once it is true; fails when that takes too long."""
    clock = SystemClock()
    until_s = clock.monotonic_s() + patience_s
    while not (found := holds()):
        assert clock.monotonic_s() < until_s, f"{what}: not within {patience_s:g} s"
        clock.sleep_s(_LOOK_S)
    return found


def _children(parent: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == parent:
                found.append(int(entry.name))
    return found


def _title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return ""
