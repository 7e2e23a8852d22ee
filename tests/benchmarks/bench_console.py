"""What three viewers of the console cost a gateway: its CPU time for a request, its throughput, and what it does idle.

The gateway is the real one in a process of its own (``console_host.py``), loaded from another process; viewers are
streams of a third. With and without viewers take turns, in a new order each round.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from failsoft.ingress import LOOPBACK
from tests.benchmarks.gateway_contenders import environment
from tests.benchmarks.measuring import CONTROL, Timings
from tests.benchmarks.outcome import Outcome, in_words
from tests.conftest import ROOT

VIEWERS, CLIENTS = 3, 16
NONE, LOOKED_AT = "nobody looks", f"{VIEWERS} viewers"
LIMIT = 1.01
"""What they may cost of the throughput."""


@dataclass(frozen=True, kw_only=True)
class Slice:
    """What a turn showed."""

    cpu_s: float
    """Of the gateway, for a request under load, or for a second without any."""
    took_s: float
    """For a request: one over the throughput."""


@dataclass(frozen=True, kw_only=True)
class Host:
    """A gateway that stands."""

    port: int
    pid: int

    def cpu_s(self) -> float:
        """CPU time of all its threads up to now, by the scheduler's own count: ticks of 10 ms are too coarse."""
        total_ns = 0
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            with contextlib.suppress(OSError):  # a thread that has just ended
                total_ns += int((task / "schedstat").read_text("utf-8").split()[0])
        return total_ns / 1e9


def measure(*, quick: bool) -> Outcome:
    """Ratios are with viewers over without: 1 is best."""
    outcome = Outcome(name="console", processes=3)
    rounds, seconds = (3, 2.0) if quick else (16, 3.0)
    with _host() as host:
        loaded = _turns(host, rounds=rounds, seconds=seconds, is_loaded=True)
        idle = _turns(host, rounds=max(3, rounds // 3), seconds=seconds if quick else 5.0, is_loaded=False)
    cpu, took, resting = _times(loaded, "cpu_s"), _times(loaded, "took_s"), _times(idle, "cpu_s")
    outcome.add("CPU of the gateway for a request", cpu)
    outcome.add("time for a request (1 / throughput)", took)
    outcome.add("CPU of the gateway for a second without requests", resting)
    outcome.ratios["cpu_with_viewers_over_without"] = cpu.ratio(LOOKED_AT, NONE)
    outcome.ratios["time_with_viewers_over_without"] = took.ratio(LOOKED_AT, NONE)
    costs_s = resting.median_s(LOOKED_AT) - resting.median_s(NONE)
    outcome.notes.append(
        f"{VIEWERS} viewers of an idle gateway cost it {in_words(costs_s)} a second, {costs_s:.2%} of a core: as much "
        f"of its throughput where it has one core; goal: below {LIMIT - 1.0:.0%}"
    )
    outcome.notes.append(f"{CLIENTS} clients; {1.0 / took.median_s(NONE):,.0f} requests a second with nobody looking")
    return outcome


def _turns(host: Host, *, rounds: int, seconds: float, is_loaded: bool) -> dict[str, list[Slice]]:
    order, found = random.Random(7), {name: list[Slice]() for name in (NONE, NONE + CONTROL, LOOKED_AT)}
    for number in range(rounds + 1):
        for name in order.sample(list(found), len(found)):
            with watched(host, VIEWERS if name == LOOKED_AT else 0):
                turn = _loaded(host, seconds) if is_loaded else _idle(host, seconds)
            if number:  # the first round warms up
                found[name].append(turn)
    return found


def _loaded(host: Host, seconds: float) -> Slice:
    command = [sys.executable, "-m", "tests.benchmarks.load_client", LOOPBACK, str(host.port), "--warm", "0"]
    command += ["--clients", str(CLIENTS), "--seconds", str(seconds)]
    before_s = host.cpu_s()
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    spent_s = host.cpu_s() - before_s
    assert done.returncode == 0, done.stderr[-2000:]
    seen = json.loads(done.stdout)
    assert seen["sources"].get("primary", 0) > 0.99 * seen["requests"], f"not the model answered: {seen}"
    return Slice(cpu_s=spent_s / seen["requests"], took_s=seen["seconds"] / seen["requests"])


def _idle(host: Host, seconds: float) -> Slice:
    before_s, began_s = host.cpu_s(), time.perf_counter()
    time.sleep(seconds)
    passed_s = time.perf_counter() - began_s
    return Slice(cpu_s=(host.cpu_s() - before_s) / passed_s, took_s=passed_s)


def _times(turns: dict[str, list[Slice]], of: str) -> Timings:
    return Timings(seconds={name: [getattr(turn, of) for turn in each] for name, each in turns.items()})


@contextmanager
def watched(host: Host, viewers: int) -> Iterator[None]:
    """That many streams are open and read; each has said something before the block begins."""
    with ExitStack() as open_streams:
        for _ in range(viewers):
            open_streams.enter_context(_viewer(host))
        yield


@contextmanager
def _viewer(host: Host) -> Iterator[None]:
    connection = http.client.HTTPConnection(LOOPBACK, host.port, timeout=30.0)
    connection.request("GET", "/v1/console/live")
    stream = connection.getresponse()
    assert stream.readline().startswith(b"data: ")
    over = threading.Event()

    def read() -> None:
        with contextlib.suppress(OSError, ValueError, AttributeError):  # it is closed under this reader's hands
            while not over.is_set() and stream.readline():
                pass

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        yield
    finally:
        over.set()
        reader.join(5.0)
        connection.close()


@contextmanager
def _host() -> Iterator[Host]:
    with tempfile.TemporaryDirectory(prefix="fsc-", dir="/tmp") as root:
        command = [sys.executable, "-m", "tests.benchmarks.console_host", root]
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield Host(port=json.loads(process.stdout.readline())["port"], pid=process.pid)
        finally:
            process.stdin.close()
            process.stdout.close()
            process.wait(60.0)
