"""The Slurm script with a real Ray and a real run, under a fake scheduler: it saves, is requeued, and is gone."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from failsoft.artifacts.home import Home
from failsoft.health.clock import SystemClock
from failsoft.health.ledger import read_ledger
from tests.deploy.fake_slurm import FakeSlurm
from tests.drills.cluster import BIN, wait_until

pytestmark = pytest.mark.drill


def started_by(slurm: FakeSlurm) -> list[str]:
    """Living processes with the job's variables, whatever session or group they made for themselves."""
    mark, found = f"FAKES={slurm.folder}".encode(), []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in path.read_bytes().split(b"\0"):
                found.append((path.parent / "cmdline").read_text("utf-8").replace("\0", " ")[:120])
        except OSError:  # it ended meanwhile, or is another user's
            continue
    return found


def kinds(home: Home) -> set[str]:
    return {event.kind for event in read_ledger(home.ledger).events} if home.ledger.exists() else set()


def test_a_real_run_saves_before_its_time_is_over_and_leaves_nothing_behind(tmp_path: Path) -> None:
    slurm = FakeSlurm(folder=tmp_path)
    for name in ("ray", "python"):
        (tmp_path / "bin" / name).unlink()
    path = os.pathsep.join((str(tmp_path / "bin"), str(BIN), os.environ["PATH"]))
    slurm.variables = {"PATH": path, "SLURM_JOB_NODELIST": "n1", "SLURM_JOB_ID": str(os.getpid() % 400)}
    (tmp_path / "addresses").write_text("127.0.0.1\n", "utf-8")
    home = Home(root=slurm.home)
    log = tmp_path / "job.log"
    job = slurm.start("", "--preset", "demo", "--max-batches", "1000000", "--no-publish", "--no-spares", log=log)

    def training() -> bool:
        assert job.poll() is None, log.read_text("utf-8")[-4000:]
        return "run_started" in kinds(home)

    wait_until(training, what="the run's first batch", timeout_s=240)
    job.send_signal(signal.SIGUSR1)
    job.wait(timeout=180)
    said = log.read_text("utf-8")
    assert "preempted" in kinds(home), said[-4000:]
    assert [line for line in slurm.lines("scontrol") if line.startswith("requeue")], said[-4000:]
    newest = home.checkpoints("nightly", SystemClock()).newest()
    assert newest is not None
    assert newest.manifest.meta["position"] > 0
    wait_until(lambda: not started_by(slurm), what="nothing is left running", timeout_s=30)
