"""A driver process that stands still is noticed, says where, and is replaced; one that is only slow is left alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from failsoft.artifacts.home import Home
from failsoft.errors import ConfigError, DriverLostError
from failsoft.health.clock import SystemClock
from failsoft.health.ledger import Event, read_ledger
from failsoft.training.survival.watch_policy import WatchPolicy
from train_jobs.child_driver import ChildDriver
from train_jobs.config import JobConfig
from train_jobs.driver_watch import DriverWatchPolicy, Vigil

QUICK = DriverWatchPolicy(silent_s=0.8, attempt_s=1.2, look_s=0.1, stacks_s=3.0)
LIFE = DriverWatchPolicy(silent_s=60.0, attempt_s=1.2, look_s=0.1, stacks_s=3.0)
PATIENT = WatchPolicy(start_up_s=0.5, first_step_s=0.5, step_s=0.5, checkpoint_s=0.5, validation_s=0.5, silence_s=0.6)


def child(home: Path, kind: str, watch: DriverWatchPolicy) -> ChildDriver:
    command = [sys.executable, "-m", "tests.train_jobs.fake_driver_process", kind]
    config = JobConfig(home=home, run="r", driver_watch=watch, watch=PATIENT)
    return ChildDriver(config, clock=SystemClock(), command=command)


def hangs(home: Path) -> list[Event]:
    return [event for event in read_ledger(Home.find(home).ledger).events if event.kind == "hang"]


@pytest.mark.parametrize(
    ("kind", "watch", "why"), [("frozen", QUICK, "no beat for 1 s"), ("still", LIFE, "nothing moved for 1 s")]
)
def test_a_driver_that_stands_still_leaves_its_stacks_and_the_next_order_finds_another(
    tmp_path: Path, kind: str, watch: DriverWatchPolicy, why: str
) -> None:
    with child(tmp_path, kind, watch) as driver:
        driver.start()
        before = driver.process_id
        with pytest.raises(DriverLostError, match=f"{before} stood still and was ended: {why} during its attempt"):
            driver.attempt(1, frozenset())
        driver.start()
        assert driver.process_id not in {None, before}
    (hang,) = hangs(tmp_path)
    assert hang.data["by"] == "supervisor"
    assert "in stand_still" in hang.data["stacks"]


def test_an_attempt_whose_workers_get_on_may_take_longer_than_the_limit(tmp_path: Path) -> None:
    with child(tmp_path, "moving", LIFE) as driver:
        driver.start()
        assert driver.attempt(2, frozenset()) is not None
    assert hangs(tmp_path) == []


def test_the_real_process_beats_while_its_main_thread_waits_and_says_where_when_asked(tmp_path: Path) -> None:
    code = (
        "import faulthandler, os, sys, threading\n"
        "from train_jobs.driver_process import Answers, STACKS_SIGNAL, beating\n"
        "faulthandler.register(STACKS_SIGNAL, file=int(sys.argv[2]))\n"
        "with os.fdopen(int(sys.argv[1]), 'w') as to, beating(Answers(to)):\n"
        "    sys.stdin.read()\n"
    )
    ours, theirs = os.pipe()
    stacks = os.open(tmp_path / "stacks", os.O_CREAT | os.O_RDWR)
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(theirs), str(stacks)], stdin=subprocess.PIPE, pass_fds=(theirs, stacks)
    )
    os.close(theirs)
    with os.fdopen(ours) as beats:
        assert json.loads(beats.readline()) == {"beat": 1}
        process.send_signal(signal.SIGUSR2)
        while not (tmp_path / "stacks").read_text():
            threading.Event().wait(0.05)
        process.communicate()
        assert process.returncode == 0
    os.close(stacks)
    assert "most recent call first" in (tmp_path / "stacks").read_text()


@pytest.mark.parametrize("order", ["start", "excluded", "rooms", "attempt", "finish"])
def test_each_order_has_its_own_patience(order: str) -> None:
    policy = DriverWatchPolicy()
    vigil, limit_s = Vigil(order, policy), policy.limit_s(order)
    looks = [vigil.look(float(now), beats=now, signs=None) for now in range(int(limit_s) + 3)]
    assert looks[: int(limit_s)] == [None] * int(limit_s)
    assert looks[-1] is not None


def test_time_in_which_nobody_looked_counts_for_two_looks_at_most() -> None:
    vigil = Vigil("attempt", DriverWatchPolicy())
    assert vigil.look(0.0, beats=1, signs=1) is None
    assert vigil.look(1e6, beats=1, signs=1) is None


def test_a_beat_that_comes_starts_the_count_of_silence_anew() -> None:
    vigil = Vigil("attempt", DriverWatchPolicy(silent_s=10.0))
    assert all(vigil.look(float(now), beats=now // 9, signs=None) is None for now in range(60))
    assert any(vigil.look(float(now), beats=99, signs=None) for now in range(60, 80))


def test_impossible_watches_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"silent_s is 2\.0 with a look each 1.0 s"):
        DriverWatchPolicy(silent_s=2.0)
    with pytest.raises(ConfigError, match="finish_s is nan"):
        DriverWatchPolicy(finish_s=float("nan"))
    with pytest.raises(ConfigError, match="the watch before it may take 4500"):
        JobConfig(home=Path(), run="r", driver_watch=replace(DriverWatchPolicy(), attempt_s=4500.0))
