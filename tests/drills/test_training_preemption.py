"""Workers that are told to leave save the same step, go in time, and nothing is lost or repeated."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from failsoft.health.ledger import Event
from failsoft.training.survival.notice import EXIT_PREEMPTED, NoticePolicy, drop_notice, withdraw_notice
from tests.conftest import ROOT
from tests.drills.last_line import last_line
from tests.drills.troubled_job import TOTAL_BATCHES, TroubledJob
from tests.drills.troubled_run import attempt, final_digest, told

pytestmark = pytest.mark.filterwarnings("ignore:`use_:DeprecationWarning")  # Ray warns of its own settings

PATIENCE_S = 300.0
CLUSTER_S = 400.0
"""A head, three nodes and two attempts; Ray is slow to start them where much else runs."""


def await_file(path: Path) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while not path.exists():
        assert time.monotonic() < until_s, f"{path} never came"
        time.sleep(0.02)


def await_event(folder: Path, kind: str) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while not told(folder, kind):
        assert time.monotonic() < until_s, f"no event {kind} came"
        time.sleep(0.02)


def left_in_time(folder: Path) -> Event:
    """By the run's own clock, from the first word to the last: what Ray takes to end its processes is Ray's."""
    (left,) = told(folder, "preempted")
    assert 0.0 <= left.at_s - told(folder, "notice_heard")[0].at_s < NoticePolicy().grace_s
    assert told(folder, "notice_missed") == []
    return left


class Meanwhile(threading.Thread):
    """Does something while one rank is in its step."""

    def __init__(self, job: TroubledJob, way: str) -> None:
        super().__init__(daemon=True)
        self.job = job
        self.way = way

    def run(self) -> None:
        await_file(self.job.folder / "in-step")
        if self.way == "file":
            drop_notice(self.job.folder, "preStop")
        else:
            os.kill(int((self.job.folder / "pid-0").read_text("utf-8")), signal.SIGTERM)
        await_event(self.job.folder, "notice_heard")  # the main thread, where Python handles signals, may be slow
        (self.job.folder / "go").touch()


@pytest.mark.drill
@pytest.mark.usefixtures("ray_local")
@pytest.mark.parametrize("way", ["signal", "file"])
def test_a_notice_to_one_rank_in_the_middle_of_a_step_saves_the_same_step_on_both_and_repeats_nothing(
    tmp_path: Path, way: str, undisturbed_digest: str
) -> None:
    job = TroubledJob(folder=tmp_path / "told")
    meanwhile = Meanwhile(job, way)
    meanwhile.start()
    assert attempt(job) is None
    meanwhile.join()
    left = left_in_time(job.folder)
    assert (left.data["position"], left.data["saved"]) == (job.position + 1, True)
    withdraw_notice(job.folder)
    assert attempt(job) is None
    first, second = told(job.folder, "run_started")
    assert (first.data["position"], second.data["position"]) == (0, job.position + 1)
    assert second.data["repeated_batches"] == 0
    assert final_digest(job.folder) == undisturbed_digest


def plain(folder: Path, *, pause_s: float) -> subprocess.Popen[str]:
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "tests.drills.plain_process", str(folder), str(pause_s)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    )


@pytest.mark.drill
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_to_the_whole_group_saves_although_it_reaches_the_workers_of_the_loader_as_well(
    tmp_path: Path, number: signal.Signals
) -> None:
    whole = plain(tmp_path / "undisturbed", pause_s=0.0)
    whole.communicate(timeout=PATIENCE_S)
    assert whole.returncode == 0
    folder = tmp_path / "told"
    process = plain(folder, pause_s=0.1)  # so that it is far from its end when the signal comes, however late
    assert process.stdout is not None
    assert process.stdout.readline() == "third batch\n"
    os.killpg(process.pid, number)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == EXIT_PREEMPTED
    (left,) = told(folder, "preempted")
    assert left.data["saved"] is True
    assert 3 <= int(left.data["position"]) < TOTAL_BATCHES
    again = plain(folder, pause_s=0.0)
    again.communicate(timeout=PATIENCE_S)
    assert again.returncode == 0
    assert [event.data["position"] for event in told(folder, "run_started")] == [0, left.data["position"]]
    assert final_digest(folder) == final_digest(tmp_path / "undisturbed")


@contextmanager
def job(home: Path) -> Iterator[subprocess.Popen[str]]:
    """For the time of the block, also when that fails; its driver ends with it."""
    command = [sys.executable, "-m", "train_jobs.intent_ner", "--home", str(home), "--run", "told", "--preset", "demo"]
    command += ["--max-batches", "300", "--workers", "1", "--no-publish"]
    output: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, cwd=ROOT, **output) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.drill
def test_sigterm_to_the_driver_is_passed_on_saved_and_answered_with_143_and_the_same_command_goes_on(
    tmp_path: Path,
) -> None:
    with job(tmp_path) as first:
        await_event(tmp_path, "run_started")
        first.send_signal(signal.SIGTERM)
        said, _ = first.communicate(timeout=PATIENCE_S)
        assert first.returncode == EXIT_PREEMPTED, said
    left = left_in_time(tmp_path)
    assert left.data["saved"] is True
    with job(tmp_path) as again:
        said, _ = again.communicate(timeout=PATIENCE_S)
        assert again.returncode == 0, said
    began = told(tmp_path, "run_started")
    assert [event.data["position"] for event in began] == [0, left.data["position"]]
    assert [event.data["repeated_batches"] for event in began] == [0, 0]
    assert len(told(tmp_path, "run_finished")) == 1


@pytest.mark.drill
def test_workers_of_a_node_that_ray_drains_save_before_it_goes_and_others_go_on(
    tmp_path: Path, undisturbed_digest: str
) -> None:
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "tests.drills.drained_cluster", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=CLUSTER_S)
    assert done.returncode == 0, done.stderr
    outcome = json.loads(last_line(done.stdout, "{"))
    assert outcome["ends"] == [None, None]
    heard = told(folder, "notice_heard")
    assert outcome["node"][:12] in heard[0].why
    assert 0.0 < heard[0].data["grace_s"] < outcome["deadline_s"]
    (left,) = told(folder, "preempted")
    assert [event.data["position"] for event in told(folder, "run_started")] == [0, left.data["position"]]
    assert told(folder, "run_started")[1].data["repeated_batches"] == 0
    assert final_digest(folder) == undisturbed_digest
