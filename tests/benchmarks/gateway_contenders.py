"""Starting one contender after another in processes of their own, each on a fresh home, and putting load on them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from failsoft.artifacts.home import Home
from failsoft.ingress import LOOPBACK, Ingress
from failsoft.remote import GatewayClient
from tests.benchmarks.leash import on_leash
from tests.benchmarks.process_tree import end_all
from tests.benchmarks.spoken import line_of
from tests.conftest import ROOT
from tests.serving.tiny_release import publish_tiny

START_S, STOP_S = 240.0, 60.0
"""A host has so long until it answers, and until it is gone."""


@dataclass(frozen=True, kw_only=True)
class Level:
    """What a number of clients saw."""

    p50_s: float
    p99_s: float
    each_s: float
    """Seconds for one request, all clients together: one over the throughput."""
    statuses: Mapping[str, int]
    sources: Mapping[str, int]

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Level:
        """What a load process printed."""
        return cls(
            p50_s=said["p50_ms"] / 1000,
            p99_s=said["p99_ms"] / 1000,
            each_s=said["seconds"] / said["requests"],
            statuses=said["statuses"],
            sources=said["sources"],
        )


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A contender that answers."""

    port: int
    home: Home
    process: subprocess.Popen[bytes]

    def operator(self) -> GatewayClient:
        """For an operator; whoever takes it closes it."""
        return GatewayClient(f"http://{LOOPBACK}:{self.port}", token=self.home.operator_token())

    def load(self, clients: int, *, seconds: float, warm_s: float = 0.5) -> Level:
        """Closed-loop load from a process of its own."""
        command = [sys.executable, "-m", "tests.benchmarks.load_client", LOOPBACK, str(self.port)]
        command += ["--clients", str(clients), "--seconds", str(seconds), "--warm", str(warm_s)]
        done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        return Level.of(json.loads(done.stdout))


def environment(**more: str) -> dict[str, str]:
    """For every process here: this checkout, no niceness of Ray's workers, and no Ray token of the caller's."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    path = os.pathsep.join([str(ROOT), str(ROOT / "platform")])
    return own | {"PYTHONPATH": path, "RAY_worker_niceness": "0", "OMP_NUM_THREADS": "1"} | more


@contextmanager
def releases() -> Iterator[Path]:
    """A folder with one small release."""
    root = Path(tempfile.mkdtemp(prefix="fsg-", dir="/tmp"))
    try:
        publish_tiny(Home.find(root))
        yield root / "releases"
    finally:
        shutil.rmtree(root, ignore_errors=True)


@contextmanager
def standing(kind: str, ingress: Ingress, published: Path, **settings: str) -> Iterator[Standing]:
    """A contender for the time of the block, on a home of its own: a plan of the one before would rule it.

    Args:
        kind: see ``gateway_host.py``.
        ingress: of those on Ray.
        published: the releases folder.
        settings: more environment.

    Raises:
        SilentHostError: it did not come up in time; with what it said last.
    """
    root = Path(tempfile.mkdtemp(prefix="fsg-", dir="/tmp"))
    shutil.copytree(published, root / "releases")
    command = [sys.executable, "-m", "tests.benchmarks.gateway_host", kind, "--ingress", ingress, "--home", str(root)]
    log = root / "log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            on_leash(command),
            cwd=ROOT,
            env=environment(**settings),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
    try:
        line = line_of(process, within_s=START_S, log=log)
        yield Standing(port=json.loads(line)["port"], home=Home.find(root), process=process)
    finally:
        _end(process)
        shutil.rmtree(root, ignore_errors=True)


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    process.stdout.close()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        end_all(process.pid)
        process.wait()
