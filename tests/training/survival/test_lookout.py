from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from failsoft.errors import TrainingError
from failsoft.health.clock import ManualClock
from failsoft.health.ledger import Ledger, Side, read_ledger
from failsoft.training.survival.lookout import Lookouts
from failsoft.training.survival.watch_policy import WatchPolicy

POLICY = WatchPolicy(tick_s=1.0, look_s=30.0)
PATIENCE_S = 60.0


class Storage:
    """Hangs while it is told to, like a mount whose server is gone."""

    def __init__(self, folder: Path) -> None:
        self.pipe = folder / "pipe"
        os.mkfifo(self.pipe)
        self.reached, self.left = threading.Event(), threading.Event()

    def look(self) -> None:
        self.reached.set()
        os.close(os.open(self.pipe, os.O_RDONLY))  # returns when somebody opens the other end
        self.left.set()

    def comes_back(self) -> None:
        with self.pipe.open("wb"):
            pass
        assert self.left.wait(PATIENCE_S)


@contextmanager
def hanging(lookouts: Lookouts, storage: Storage) -> Iterator[None]:
    looker = threading.Thread(target=lookouts.look)
    looker.start()
    assert storage.reached.wait(PATIENCE_S)
    yield
    storage.comes_back()
    looker.join()


def lookouts_of(storage: Storage, folder: Path, clock: ManualClock) -> Lookouts:
    ledger = Ledger(folder / "ledger.jsonl", clock, side=Side.TRAINING, subject="run")
    return Lookouts([storage.look], ledger=ledger, clock=clock, rank=3, policy=POLICY)


def test_storage_that_hangs_is_told_of_once_in_the_log_and_in_the_ledger_when_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    storage, clock = Storage(tmp_path), ManualClock()
    lookouts = lookouts_of(storage, tmp_path, clock)
    with hanging(lookouts, storage):
        for _ in range(400):
            lookouts.judge()
            clock.advance(1.0)
    (said,) = caplog.messages
    assert "rank 3: a look at storage or at the cluster has not returned for 30 s" in said
    assert "test_lookout.py" in said
    (event,) = read_ledger(tmp_path / "ledger.jsonl").events
    assert (event.kind, event.data["rank"], event.data["took_s"]) == ("storage_hung", 3, 400.0)


def test_a_worker_that_was_frozen_for_an_hour_while_it_looked_says_nothing_of_storage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    storage, clock = Storage(tmp_path), ManualClock()
    lookouts = lookouts_of(storage, tmp_path, clock)
    with hanging(lookouts, storage):
        lookouts.judge()
        clock.advance(3600.0)
        lookouts.judge()
    lookouts.judge()
    assert caplog.messages == []
    assert read_ledger(tmp_path / "ledger.jsonl").events == ()


IN_A_WORKER = """
import sys, threading
from pathlib import Path
from failsoft.health.clock import SystemClock
from failsoft.health.ledger import Ledger, Side
from failsoft.training.survival.watch_policy import WatchPolicy
from failsoft.training.survival.watchdog import Watchdog, WatchPost
folder, way = Path(sys.argv[1]), sys.argv[2]
ledger = Ledger(folder / "ledger.jsonl", SystemClock(), side=Side.TRAINING, subject="run")
post = WatchPost(folder=folder, ledger=ledger, clock=SystemClock())
policy = WatchPolicy(tick_s=0.05, interpreter_s=3.0, look_s=0.2)

def look():
    if way == "raises":
        raise ValueError("no look may")
    with (folder / "pipe").open("rb") as content:
        content.read()

with Watchdog(post, policy, chores=[look]):
    threading.Event().wait(7.0 if way == "hangs" else 60.0)
print("trained", flush=True)
import os
os._exit(0)
"""


def worker(folder: Path, way: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", IN_A_WORKER, str(folder), way]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(command, check=False, timeout=240, env=environment, capture_output=True, text=True)


def test_a_look_that_never_returns_does_not_end_a_healthy_worker(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    done = worker(tmp_path, "hangs")
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
    assert "has not returned for 0.2 s" in done.stderr


def test_a_look_that_raises_ends_the_worker_since_no_notice_would_be_heard_any_more(tmp_path: Path) -> None:
    done = worker(tmp_path, "raises")
    assert (done.returncode, done.stdout) == (1, "")
    assert "no look may" in done.stderr


def test_the_watchdog_says_so_when_a_look_has_died(tmp_path: Path) -> None:
    lookouts = lookouts_of(Storage(tmp_path), tmp_path, ManualClock())
    lookouts._all[0].dead = True
    with pytest.raises(TrainingError, match="nobody would hear a notice to leave"):
        lookouts.judge()
