from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from failsoft.health.ledger import read_ledger
from tests.conftest import ROOT

WITH_A_KILL = """
import runpy, sys
from dataclasses import replace
from failsoft.health.faults import FaultPlan
from train_jobs.own import train_own
job = runpy.run_path(sys.argv.pop())["job"]
plan = FaultPlan.from_json('[{"kind": "kill_worker", "position": 150}]')
print(train_own(replace(job, config=replace(job.config, faults=plan, snapshot_every_steps=20))).name)
"""


@pytest.mark.drill
def test_the_example_of_an_own_task_outlives_its_worker_on_ray(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITH_A_KILL, str(tmp_path), str(ROOT / "docs" / "own_job.py")]
    (tmp_path / "memory").mkdir()
    memory = {"FAILSOFT_HOST_MEMORY": str(tmp_path / "memory")}  # the tests' own environment does without
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=600, check=False, cwd=tmp_path, env=os.environ | memory
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "position-000000000300" in done.stdout
    events = [event for event in read_ledger(tmp_path / "ledger.jsonl").events if event.subject == "sines"]
    assert [event.kind for event in events].count("run_started") == 2
    (again,) = [event for event in events if event.kind == "restored"]
    assert 0 <= again.data["repeated_batches"] <= 20
