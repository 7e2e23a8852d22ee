"""A real Ray head node, started by the same command that a user types, and stopped by its own process id."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.conftest import ROOT

BIN = Path(sys.executable).parent
PORT_FLAGS = (
    "--port",
    "--dashboard-port",
    "--dashboard-agent-listen-port",
    "--dashboard-agent-grpc-port",
    "--runtime-env-agent-port",
    "--metrics-export-port",
    "--node-manager-port",
    "--object-manager-port",
    "--ray-client-server-port",
)
# Above Ray's own range for workers (10002-19999) and below the range from which the kernel hands out ports.
FIRST_PORT, LAST_PORT = 20_000, 31_000
_handed_out: set[int] = set()
_HEAD_TRIES = 4
STARTED = "This command will now block forever"
"""What ``ray start --block`` says once its node has registered."""


@dataclass(frozen=True, kw_only=True)
class Head:
    """Where a running head node listens, and the environment in which commands find it."""

    address: str
    """For ``serve`` and ``ray.init``."""
    dashboard_url: str
    """For ``ray job``."""
    metrics_address: str
    """Where Prometheus scrapes it."""
    environment: dict[str, str]
    folder: Path


def free_ports(count: int) -> list[int]:
    """Ports on loopback that nobody holds now, all different, and none that this process was given before.

    Ray's agent opens its own ports only seconds after the node counts as up: until then they look free.
    """
    found: list[int] = []
    for port in range(FIRST_PORT + os.getpid() % 1000 * 10, LAST_PORT):
        with socket.socket() as probe:
            if port not in _handed_out and probe.connect_ex(("127.0.0.1", port)) != 0:
                found.append(port)
        if len(found) == count:
            _handed_out.update(found)
            return found
    raise RuntimeError(f"fewer than {count} free ports up to {LAST_PORT}")


def wait_until(holds: Callable[[], bool], *, what: str, timeout_s: float) -> None:
    """Ask again and again until it holds; fail with ``what`` when it does not in time."""
    deadline_s = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{what}: not within {timeout_s} s")
        time.sleep(0.2)


@contextmanager
def child(command: list[str], *, environment: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command for the time of the block in a process group of its own, then end that group and nothing else."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        yield process
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def command_environment(home: Path) -> dict[str, str]:
    """What a user's shell has after ``source .venv/bin/activate``: no PYTHONPATH, the venv first on the PATH."""
    inherited = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "RAY_TMPDIR"}}
    return inherited | {
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "FAILSOFT_HOME": str(home),
        "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",  # a lone node has nowhere to drain to; half a minute saved
    }


@contextmanager
def ray_head(home: Path, *, num_cpus: int = 4) -> Iterator[Head]:
    """``ray start --head`` with ports and files of its own, up when the block begins and gone when it ends.

    Ray gives a node half a minute to come up, and less to its agents; a busy machine gets more than one try.
    """
    with ExitStack() as running:
        for _ in range(_HEAD_TRIES - 1):
            with suppress(HeadEndedError, TimeoutError):
                head = running.enter_context(_one_head(home, num_cpus))
                break
        else:
            head = running.enter_context(_one_head(home, num_cpus))
        yield head


@contextmanager
def _one_head(home: Path, num_cpus: int) -> Iterator[Head]:
    folder = Path(tempfile.mkdtemp(prefix="fsh-", dir="/tmp"))
    ports = dict(zip(PORT_FLAGS, free_ports(len(PORT_FLAGS)), strict=True))
    environment = command_environment(home)
    command = [str(BIN / "ray"), "start", "--head", "--block", "--disable-usage-stats"]
    command += ["--node-ip-address", "127.0.0.1"]
    command += ["--num-cpus", str(num_cpus), "--object-store-memory", str(256 * 1024 * 1024)]
    command += ["--temp-dir", str(folder / "ray"), "--include-dashboard", "true", "--dashboard-host", "127.0.0.1"]
    command += [part for flag, port in ports.items() for part in (flag, str(port))]
    head = Head(
        address=f"127.0.0.1:{ports['--port']}",
        dashboard_url=f"http://127.0.0.1:{ports['--dashboard-port']}",
        metrics_address=f"127.0.0.1:{ports['--metrics-export-port']}",
        environment=environment,
        folder=folder,
    )
    log = folder / "head.log"
    try:
        with child(command, environment=environment, log=log) as process:
            wait_until(lambda: _is_up(head, process, log), what="ray start --head", timeout_s=120)
            yield head
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class HeadEndedError(AssertionError):
    """``ray start`` gave up, and says why."""


def _is_up(head: Head, process: subprocess.Popen[bytes], log: Path) -> bool:
    """The dashboard answers before there is a node: it is up when the command has said so, and the node lives."""
    said = log.read_text("utf-8", "replace")
    if process.poll() is not None:
        raise HeadEndedError(f"ray start --head ended: {said[-2000:]}")
    token = {"Authorization": f"Bearer {head.environment['RAY_AUTH_TOKEN']}"}
    try:
        jobs = httpx.get(f"{head.dashboard_url}/api/jobs/", headers=token, timeout=5)
    except httpx.HTTPError:
        return False
    return jobs.status_code == 200 and STARTED in said


def run(head: Head, *command: str, timeout_s: float) -> str:
    """Run one command of the venv against the head node from the checkout; its output, or a failed test with it."""
    done = subprocess.run(
        [str(BIN / command[0]), *command[1:]],
        cwd=ROOT,
        env=head.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-6000:]}"
    return done.stdout


@contextmanager
def serving(head: Head, *told: str, log: Path) -> Iterator[str]:
    """``serve run serve_apps:app`` on a port of its own, for the time of the block; its address."""
    port = free_ports(1)[0]
    run(head, "serve", "start", "--address", head.address, "--http-port", str(port), timeout_s=120)
    url = f"http://127.0.0.1:{port}"
    command = [str(BIN / "serve"), "run", "--address", head.address, "serve_apps:app", *told]
    with child(command, environment=head.environment, log=log) as process:
        wait_until(lambda: _answers(url, process, log), what="serve run serve_apps:app", timeout_s=180)
        yield url


def _answers(url: str, process: subprocess.Popen[bytes], log: Path) -> bool:
    assert process.poll() is None, f"serve run ended: {log.read_text('utf-8', 'replace')[-4000:]}"
    try:
        return httpx.get(f"{url}/healthz", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False
