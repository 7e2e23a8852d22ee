"""The process that holds the workers is frozen: its supervisor notices, learns where it stood, and replaces it."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from failsoft.training.accounting.exactness import verify
from tests.drills.private_cluster import private_cluster, wait_for
from tests.drills.test_elastic import PATIENCE_S, Watched, job, start
from train_jobs.driver_watch import DriverWatchPolicy

SILENT_S = 30.0
"""A sound driver is silent for seconds while it loads torch, on a busy machine for longer."""


@pytest.mark.drill
def test_a_frozen_driver_is_ended_with_its_stacks_kept_and_the_run_loses_and_repeats_nothing(tmp_path: Path) -> None:
    config = replace(job(tmp_path / "home"), workers=1, driver_watch=DriverWatchPolicy(silent_s=SILENT_S))
    watched, log = Watched(config), tmp_path / "log"
    with private_cluster(nodes=1) as cluster:
        process = start(config, cluster, log)
        try:
            wait_for(lambda: watched.works_with(1, groups=1), "training")
            (born,) = watched.events("driver_started")
            os.kill(int(born.data["process"]), signal.SIGSTOP)
            (hang,) = wait_for(lambda: watched.events("hang"), "the supervisor to notice", 10 * SILENT_S)
            assert process.wait(timeout=PATIENCE_S) == 0, log.read_text("utf-8")
        finally:
            process.kill()
            process.wait()
    assert hang.data["by"] == "supervisor"
    assert "no beat for" in hang.why
    assert "driver_process.py" in hang.data["stacks"]
    assert "stood still and was ended" in watched.events("driver_lost")[0].why
    assert verify(watched.home.run(config.run)).sound
