"""A real Ray over several machines of :mod:`tests.drills.netns`, with the app deployed on it by Serve's own config.

The head has no CPU, so that nothing of the app lies there; the rollout controller lies on the first worker.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import yaml

from failsoft.artifacts.home import Home
from failsoft.remote import GatewayClient
from tests.conftest import ROOT
from tests.drills.cluster import BIN, child, command_environment, wait_until
from tests.drills.flats_app import publish_flats
from tests.drills.netns import Machine, Network, network
from tests.drills.private_cluster import QUICK_HEARTBEATS

PORT, DASHBOARD = 8000, 8265
NODE_IS_UP = "will now block forever"
_TRIES = 4
_YIELDING = ["nice", "-n", "5"]
"""Of the workers: of machines on the same cores, one that comes up is waited for 15 s by itself, and no longer."""
_DASHBOARD, _HELD_BACK = b"dashboard/dashboard.py", 15
SETTINGS = QUICK_HEARTBEATS | {
    "RAY_health_check_failure_threshold": "6",  # three machines on one: what answers late is not dead
    "RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S": "1",
    "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "5",
    "RAY_worker_niceness": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": str(ROOT),
}
_START = [str(BIN / "ray"), "start", "--object-store-memory", str(80 * 1024 * 1024), "--disable-usage-stats", "--block"]
CONFIG: dict[str, Any] = {
    "proxy_location": "EveryNode",
    "http_options": {"host": "0.0.0.0", "port": PORT},  # noqa: S104 -- in a namespace that only this test reaches
    "applications": [
        {
            "name": "failsoft",
            "route_prefix": "/",
            "import_path": "tests.drills.flats_app:app",
            "args": {"profile": "drill", "gateways": 2, "replicas": 2, "allow_planned_faults": True},
            "deployments": [{"name": name, "max_replicas_per_node": 1} for name in ("gateway", "blue", "green")],
        }
    ],
}
"""As of deploy/kubernetes/serving: gateways and models on two machines, one of each on each."""


class NetworkCluster:
    """A head and its workers, and the app's home on storage that all of them share."""

    def __init__(self, net: Network, folder: Path) -> None:
        self.net, self.folder = net, folder
        self.home = Home.find(folder / "home")
        self.head = net.add("head")
        self.workers: list[Machine] = []
        self._stack = ExitStack()
        self._http = self._stack.enter_context(httpx.Client(timeout=5.0))  # each new one reads all certificates
        self._lives = 0

    def start_head(self) -> None:
        """Also again after it was killed; it finds its memory in RocksDB."""
        address = ["--head", f"--node-ip-address={self.head.address}", "--port=6379", "--num-cpus=0"]
        address += [
            "--include-dashboard=true",
            f"--dashboard-host={self.head.address}",
            f"--dashboard-port={DASHBOARD}",
        ]
        more = {"RAY_gcs_storage": "rocksdb", "RAY_gcs_storage_path": str(self.folder / "gcs")}
        self._come_up(self.head, [*address, f"--temp-dir={self.folder / 'ray'}"], more)
        wait_until(self._head_answers, what="the head", timeout_s=120)

    def add_worker(self, name: str) -> Machine:
        """One CPU more; returns when it has joined."""
        machine = self.net.add(name)
        options = [f"--address={self.head.address}:6379", f"--node-ip-address={machine.address}", "--num-cpus=1"]
        self._come_up(machine, options, before=_YIELDING)
        self.workers.append(machine)
        return machine

    def _come_up(
        self, machine: Machine, options: list[str], more: dict[str, str] | None = None, *, before: Sequence[str] = ()
    ) -> None:
        """Ray gives a node half a minute, a busy machine may need more: started again, as by its systemd unit."""
        log = self.folder
        for _ in range(_TRIES):
            # Ray refuses to start where the last head was while it sees others' processes that name that one: machines
            # here are networks apart, and share one table of processes.
            (self.folder / "ray" / "ray_current_cluster").unlink(missing_ok=True)
            log, process = self._node(machine, [*before, *_START, *options], more)
            wait_until(partial(_has_come_or_gone, machine, log, process), what=f"node {machine.name}", timeout_s=120)
            if NODE_IS_UP in log.read_text("utf-8", "replace"):
                return
            machine.lose_power()
        raise RuntimeError(f"node {machine.name} does not come up: {log.read_text('utf-8', 'replace')[-3000:]}")

    def deploy(self, config: dict[str, Any] = CONFIG, *, within_s: float = 120.0) -> None:
        """``serve deploy``, and wait until the app runs."""
        path = self.folder / "serve.yaml"
        path.write_text(yaml.safe_dump(config), "utf-8")
        command = [str(BIN / "serve"), "deploy", str(path), "--address", f"http://{self.head.address}:{DASHBOARD}"]
        done = subprocess.run(command, env=self.environment(), capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        try:
            wait_until(lambda: self.app_state() == "RUNNING", what="the app", timeout_s=within_s)
        except TimeoutError as error:
            error.add_note(self._what_there_is())
            raise

    def _what_there_is(self) -> str:
        """For whoever has to find out why."""
        logs = [f"{path.name}: {path.read_text('utf-8', 'replace')[-1500:]}" for path in self.folder.glob("*.log")]
        return "\n".join([json.dumps(self._ask("/api/serve/applications/"), indent=1)[-8000:], *logs])

    def lead_from(self, machine: Machine, release: str) -> None:
        """Have the rollout controller on this machine; before the app is there."""
        words = [f"{self.head.address}:6379", machine.address, str(self.home.root), release]
        command = machine.inside([sys.executable, "-m", "tests.drills.pinned_controller", *words])
        done = subprocess.run(
            command, cwd=ROOT, env=self.environment(), capture_output=True, text=True, timeout=150, check=False
        )
        assert "leads in process" in done.stdout, done.stdout + done.stderr[-3000:]

    def app_state(self) -> str:
        """What Serve says of the app; empty while nobody answers."""
        try:
            apps = self._ask("/api/serve/applications/")["applications"]
        except (httpx.HTTPError, ValueError, KeyError):
            return ""
        return str(apps.get("failsoft", {}).get("status", ""))

    def url(self, machine: Machine) -> str:
        """The entrance there."""
        return f"http://{machine.address}:{PORT}"

    def operator(self, machine: Machine) -> GatewayClient:
        """For an operator at that entrance; whoever takes it closes it."""
        return GatewayClient(self.url(machine), token=self.home.operator_token())

    def status(self, machine: Machine) -> dict[str, Any]:
        """Of the gateway on that machine: its proxy asks the one beside it. Empty when nobody answers."""
        try:
            found = self._http.get(f"{self.url(machine)}/v1/status")
            return dict(found.json()) if found.status_code == 200 else {}
        except (httpx.HTTPError, ValueError):
            return {}

    def environment(self) -> dict[str, str]:
        """Of each node and command."""
        return command_environment(self.home.root) | SETTINGS

    def _node(
        self, machine: Machine, words: list[str], more: dict[str, str] | None
    ) -> tuple[Path, subprocess.Popen[bytes]]:
        self._lives += 1
        log = self.folder / f"{machine.name}-{self._lives}.log"
        started = child(machine.inside(words), environment=self.environment() | (more or {}), log=log)
        return log, self._stack.enter_context(started)

    def _head_answers(self) -> bool:
        try:
            self._ask("/api/jobs/")
        except (httpx.HTTPError, ValueError):
            return False
        return True

    def _ask(self, route: str) -> Any:
        token = {"Authorization": f"Bearer {self.environment()['RAY_AUTH_TOKEN']}"}
        found = self._http.get(f"http://{self.head.address}:{DASHBOARD}{route}", headers=token)
        found.raise_for_status()
        return json.loads(found.text)

    def close(self) -> None:
        """End all nodes at once: a graceful end of each would take half a minute."""
        for machine in (*self.workers, self.head):
            machine.lose_power()
        self._stack.close()


def _has_come_or_gone(machine: Machine, log: Path, process: subprocess.Popen[bytes]) -> bool:
    come = NODE_IS_UP in log.read_text("utf-8", "replace")
    _set_dashboard_back(machine, niceness=0 if come else _HELD_BACK)
    return come or process.poll() is not None


def _set_dashboard_back(machine: Machine, *, niceness: int) -> None:
    """Of a head's processes that start at once its agent goes first: Ray waits 15 s for that one, and then gives up.

    With RocksDB a head does not wait for its dashboard any more, which is ten processes of Python; a head of its own
    cores has time for all of them, this one shares two with every machine of the drill.
    """
    for pid in machine.processes():
        with suppress(OSError):  # it is gone meanwhile
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
            if _DASHBOARD in words and os.getpriority(os.PRIO_PROCESS, pid) != niceness:
                os.setpriority(os.PRIO_PROCESS, pid, niceness)


@contextmanager
def network_cluster(workers: tuple[str, ...] = ("a", "b")) -> Iterator[NetworkCluster]:
    """A head, workers and the app, both gateways serving."""
    folder = Path(tempfile.mkdtemp(prefix="fsw-", dir="/tmp"))
    try:
        with network() as net:
            cluster = NetworkCluster(net, folder)
            try:
                release = publish_flats(cluster.home.root)
                cluster.start_head()
                for name in workers:
                    cluster.add_worker(name)
                cluster.lead_from(cluster.workers[0], release)
                cluster.deploy()
                yield cluster
            finally:
                cluster.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
