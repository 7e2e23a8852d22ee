from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from failsoft.artifacts.home import Home
from failsoft.errors import CorpusError, DriverLostError, NoRayError
from failsoft.health.backoff import BackoffPolicy
from failsoft.health.clock import ManualClock, SystemClock
from failsoft.health.faults import Fault, FaultKind, FaultPlan
from failsoft.health.ledger import read_ledger
from failsoft.training.checkpoints.driver_lock import sole_driver
from failsoft.training.escalation import Poisoned
from failsoft.training.spikes import SpikePolicy
from failsoft.training.survival.notice import drop_notice
from failsoft.training.survival.room import NodeState
from tests.conftest import ROOT
from train_jobs.child_driver import ChildDriver
from train_jobs.config import JobConfig, Preset
from train_jobs.connect import ray_answers
from train_jobs.driver_process import Answers


def child(home: Path, kind: str, clock: ManualClock | None = None) -> ChildDriver:
    command = [sys.executable, "-m", "tests.train_jobs.fake_driver_process", kind]
    return ChildDriver(JobConfig(home=home, run="r"), clock=clock or ManualClock(), command=command)


def told(home: Path, kind: str) -> list[str]:
    return [event.why for event in read_ledger(Home.find(home).ledger).events if event.kind == kind]


def test_orders_are_carried_out_in_a_process_that_stays(tmp_path: Path) -> None:
    with child(tmp_path, "good") as driver:
        driver.start()
        first, second = (driver.attempt(2, frozenset({"ab"})) for _ in range(2))
    assert first == second
    assert first is not None
    assert first.startswith("2 without ['ab'] in ")
    assert driver.process_id is None
    assert len(told(tmp_path, "driver_started")) == 1


def test_what_the_cluster_has_left_comes_through(tmp_path: Path) -> None:
    with child(tmp_path, "good") as driver:
        assert driver.rooms() is None
        driver.start()
        rooms = driver.rooms()
    assert rooms is not None
    assert [(room.node, room.free["CPU"], room.state) for room in rooms] == [("ab", 1.0, NodeState.DRAINING)]


def test_a_driver_that_is_killed_is_named_with_its_signal_and_the_next_order_finds_another(tmp_path: Path) -> None:
    with child(tmp_path, "dying") as driver:
        driver.start()
        before = driver.process_id
        with pytest.raises(DriverLostError, match=f"driver process {before} was killed by SIGKILL"):
            driver.attempt(1, frozenset())
        driver.start()
        assert driver.process_id not in {None, before}
    assert len(told(tmp_path, "driver_started")) == 2
    assert len(told(tmp_path, "driver_lost")) == 1


def test_a_driver_that_ray_failed_is_replaced_by_one_that_connects_anew(tmp_path: Path) -> None:
    with child(tmp_path, "failed-by-ray") as driver:
        driver.start()
        before = driver.process_id
        with pytest.raises(DriverLostError, match="RaySystemError"):
            driver.attempt(1, frozenset())
        driver.start()
        assert driver.process_id not in {None, before}
    assert len(told(tmp_path, "driver_lost")) == 1


@pytest.mark.parametrize(
    "rest", ['{"id": 0, "val', '{"id": 0, "value": "\\u', '{"id": 0, "value": "Ã', "[0]", '{"id": 0}', "{}", "Ray"]
)
def test_an_answer_that_a_driver_was_killed_over_is_the_end_of_that_driver_and_not_of_the_waiting(
    tmp_path: Path, rest: str
) -> None:
    with child(tmp_path, f"torn {rest}") as driver:
        driver.start()
        before = driver.process_id
        with pytest.raises(DriverLostError, match=f"driver process {before} .*after an answer that is none"):
            driver.attempt(1, frozenset())
        driver.start()
        assert driver.process_id not in {None, before}


def test_a_driver_that_ends_well_without_an_answer_is_lost(tmp_path: Path) -> None:
    with child(tmp_path, "leaving") as driver:
        driver.start()
        with pytest.raises(DriverLostError, match=r"ended with status 0$"):
            driver.attempt(1, frozenset())


def test_a_value_that_no_line_can_carry_is_answered_in_words() -> None:
    lines = io.StringIO()
    Answers(lines).give(3, lambda: {"quality": object()})
    (said,) = (json.loads(line) for line in lines.getvalue().splitlines())
    assert (said["id"], said["error"]) == (3, "Exception")
    assert "not JSON serializable" in said["says"]


def test_an_error_of_the_driver_is_raised_as_what_it_was(tmp_path: Path) -> None:
    with child(tmp_path, "refusing") as driver, pytest.raises(CorpusError, match="the data of r can't be read"):
        driver.start()


def test_a_ray_that_is_away_is_waited_for_with_a_limit_and_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    clock = ManualClock()
    with child(tmp_path, "no-ray", clock) as driver, pytest.raises(NoRayError, match="then the same command"):
        driver.start()
    assert 600.0 <= clock.monotonic_s() < 610.0
    assert told(tmp_path, "ray_awaited") == ["waits up to 600 s for a Ray to connect to: no Ray here"]


def test_a_private_ray_that_does_not_come_up_in_time_is_tried_again_by_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with child(tmp_path, f"late-ray {tmp_path / 'tried'}") as driver:
        driver.start()
        assert driver.attempt(1, frozenset()) is not None
    assert len(told(tmp_path, "driver_started")) == 2
    assert len(told(tmp_path, "ray_awaited")) == 1


def test_a_driver_whose_head_is_gone_is_replaced_by_one_that_connects_anew(tmp_path: Path) -> None:
    with child(tmp_path, "forgets") as driver:
        driver.start()
        before = driver.process_id
        driver.start()
        assert driver.process_id not in {None, before}
    assert "does not say any more what its cluster has" in told(tmp_path, "ray_awaited")[0]


def test_a_cluster_that_never_says_what_it_has_is_no_lost_one(tmp_path: Path) -> None:
    with child(tmp_path, "never-knows") as driver:
        driver.start()
        driver.start()
    assert len(told(tmp_path, "driver_started")) == 1


def test_a_run_that_is_told_to_leave_does_not_wait_for_a_ray(tmp_path: Path) -> None:
    clock = ManualClock()
    drop_notice(Home.find(tmp_path).run("r"), "preStop")
    with child(tmp_path, "no-ray", clock) as driver, pytest.raises(DriverLostError, match="told to leave"):
        driver.start()
    assert clock.monotonic_s() == 0.0


def test_a_head_that_is_gone_is_seen_without_ray() -> None:
    assert ray_answers({})
    assert ray_answers({"RAY_ADDRESS": "auto"})
    assert ray_answers({"RAY_ADDRESS": "ray://head:10001"})
    assert not ray_answers({"RAY_ADDRESS": "127.0.0.1:1"})


def test_a_job_is_the_same_job_behind_the_pipe() -> None:
    config = JobConfig(
        home=Path("/h"),
        run="r",
        preset=Preset.DEMO,
        workers=(1, 3),
        faults=FaultPlan(faults=(Fault(kind=FaultKind.KILL_WORKER, position=4, rank=2),)),
        poisoned=Poisoned.REPLAY,
        backoff=BackoffPolicy(first_s=0.0, cap_s=0.0),
        loss_spikes=SpikePolicy(window=150),
    )
    kind = TypeAdapter(JobConfig)
    assert kind.validate_json(kind.dump_json(config)) == config


def test_a_driver_whose_supervisor_is_killed_ends_at_once_and_frees_the_run(tmp_path: Path) -> None:
    """The supervisor is a process that is killed as soon as its driver's process is at work."""
    code = f"""
import os, signal, sys
from failsoft.health.clock import SystemClock
from failsoft.training.checkpoints.driver_lock import sole_driver
from pathlib import Path
from train_jobs.child_driver import ChildDriver
from train_jobs.config import JobConfig
home = Path({str(tmp_path)!r})
with sole_driver(home / "runs" / "r"):
    driver = ChildDriver(JobConfig(home=home, run="r"), clock=SystemClock(), command=[
        sys.executable, "-m", "tests.train_jobs.fake_driver_process", "good"])
    driver.start()
    print(driver.process_id, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == -9, done.stderr
    clock = SystemClock()
    until_s = clock.monotonic_s() + 20.0
    while os.path.exists(f"/proc/{done.stdout.strip()}") and clock.monotonic_s() < until_s:
        clock.sleep_s(0.05)
    assert not os.path.exists(f"/proc/{done.stdout.strip()}")
    with sole_driver(tmp_path / "runs" / "r"):
        pass
