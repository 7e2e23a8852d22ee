"""A worker is killed, and those that take over began before it died."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from failsoft.training.ray_train import RaySettings, run_attempt
from failsoft.training.survival.warmth import SPARE_READY, SparePolicy
from failsoft.training.survival.watch_policy import WatchPolicy
from tests.drills.cluster import wait_until
from tests.drills.troubled_job import TroubledJob, build_troubled
from tests.drills.troubled_run import final_digest, told

pytestmark = [
    pytest.mark.drill,
    pytest.mark.usefixtures("ray_local"),
    pytest.mark.filterwarnings("ignore:`use_:DeprecationWarning"),  # Ray warns of its own settings
]
PATIENT = WatchPolicy(step_s=300.0, tick_s=0.2)
POLICY = SparePolicy(after_s=0.0, memory_fraction=1.0)  # at once, and on a small machine, too


def workers(folder: Path) -> set[int]:
    return {int((folder / f"pid-{rank}").read_text("utf-8")) for rank in range(2)}


def spares_ready(folder: Path) -> set[int]:
    return {int(event.data["process"]) for event in told(folder, SPARE_READY)}


def all_ready(folder: Path) -> bool:
    ordered = told(folder, "spares_ordered")
    return bool(ordered) and len(spares_ready(folder)) == ordered[0].data["count"]


def kill_when_spares_stand_by(folder: Path) -> tuple[set[int], set[int]]:
    """The workers, and the spares that were ready, when one worker was killed."""
    wait_until(lambda: all_ready(folder), what="spares", timeout_s=240)
    before, ready = workers(folder), spares_ready(folder)
    os.kill(int((folder / "pid-1").read_text("utf-8")), signal.SIGKILL)
    return before, ready


def test_workers_that_take_over_were_warm_before_the_kill_and_the_run_ends_the_same(
    tmp_path: Path, undisturbed_digest: str
) -> None:
    job = TroubledJob(folder=tmp_path / "run")  # one rank waits in batch 17 until it is killed
    job.folder.mkdir()
    settings = RaySettings(
        folder=job.folder, ledger=job.folder / "ledger.jsonl", workers=2, watch=PATIENT, spares=POLICY
    )
    with ThreadPoolExecutor(1) as pool:
        killing = pool.submit(kill_when_spares_stand_by, job.folder)
        assert run_attempt(build_troubled, job, settings) is None
        before, ready = killing.result()
    after = workers(job.folder)
    assert len(after) == 2
    assert not after & before
    assert after <= ready, f"workers {after} are none of the spares {ready}"
    assert all(event.data["missing"] == {} for event in told(job.folder, SPARE_READY))
    assert final_digest(job.folder) == undisturbed_digest
