"""What stands around the loop in a worker, in one process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from failsoft.health.ledger import read_ledger
from failsoft.training.survival.fabric import FabricConfig
from failsoft.training.survival.station import Station, prepare

IN_A_WORKER = """
import os, signal, sys, threading
from pathlib import Path
import failsoft.training.survival.station as s
from failsoft.health.clock import SystemClock
from failsoft.errors import PreemptedError
from failsoft.health.ledger import Ledger, Side
from failsoft.training.survival.fabric import FabricConfig
from failsoft.training.survival.notice import Word
from failsoft.training.ranks import SoloRank
from failsoft.training.survival.watch_policy import WatchPolicy
from tests.training.toys import toy_loop

folder, way = Path(sys.argv[1]), sys.argv[2]
station = s.Station()
s.prepare(station, FabricConfig(interface="lo"))
ledger = Ledger(folder / "ledger.jsonl", SystemClock(), side=Side.TRAINING, subject="run")
orders = s.Orders(folder=folder, ledger=ledger, clock=SystemClock(), watch=WatchPolicy(tick_s=0.01))
overhear = lambda: Word(why="the node drains") if way == "drain" else None

def build(ranks):
    if way == "signal":
        os.kill(os.getpid(), signal.SIGTERM)
    loop = toy_loop(folder, ranks=ranks)
    if way == "drain":
        while station.notice.heard is None:
            threading.Event().wait(0.01)
    return loop

try:
    with s.watched(station, orders, SoloRank(), overhear=overhear) as connected:
        connected(build).run()
except PreemptedError as error:
    print(error)
    sys.exit(7)
print(os.environ["GLOO_SOCKET_IFNAME"], station.notice.closed)
"""


def worker(folder: Path, way: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", IN_A_WORKER, str(folder), way]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(command, check=False, timeout=120, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize(("way", "why"), [("signal", "SIGTERM to process"), ("drain", "the node drains")])
def test_a_worker_that_is_told_while_it_starts_up_saves_and_leaves_before_its_first_batch(
    tmp_path: Path, way: str, why: str
) -> None:
    told = worker(tmp_path, way)
    assert told.returncode == 7, told.stderr
    assert why in told.stdout
    events = {event.kind: event for event in read_ledger(tmp_path / "ledger.jsonl").events}
    assert (events["preempted"].data["position"], events["preempted"].data["saved"]) == (0, True)
    again = worker(tmp_path, "none")
    assert (again.returncode, again.stdout) == (0, "lo True\n"), again.stderr


def test_the_network_is_told_once_with_whose_each_variable_is(tmp_path: Path) -> None:
    assert worker(tmp_path, "none").returncode == 0
    (network,) = (event for event in read_ledger(tmp_path / "ledger.jsonl").events if event.kind == "network")
    assert network.data["GLOO_SOCKET_IFNAME"] == "lo (failsoft)"
    assert network.data["collective timeout"] == "300 s"


def test_preparing_leaves_the_users_variables_alone_and_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "77")
    monkeypatch.setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "")
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1)}
    station = Station()
    try:
        prepare(station, FabricConfig())
        os.kill(os.getpid(), signal.SIGUSR1)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert station.notice.heard is not None
    assert os.environ["TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"] == "77"
    assert os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "3"
    assert station.network["TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"] == "77 (yours)"
