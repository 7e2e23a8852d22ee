"""A task of one's own whose model is in shards, on Ray: one line of ``learn`` more, and a worker that is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from failsoft.artifacts.home import Home
from failsoft.health.clock import SystemClock
from failsoft.health.ledger import read_ledger
from failsoft.training.checkpoints.checkpoint import newest_healthy
from tests.conftest import ROOT

SHARDED = """
import runpy, sys
from dataclasses import replace
import torch
from torch.distributed.fsdp import fully_shard
from failsoft.health.faults import FaultPlan
from train_jobs.own import Learning, train_own
own = runpy.run_path(sys.argv.pop())
Sines = own["Sines"]

def learn(device):
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1)).to(device)
    fully_shard(model)
    return Learning(model=model, optimizer=torch.optim.AdamW(model.parameters(), lr=0.01), task=Sines)

plan = FaultPlan.from_json('[{"kind": "kill_worker", "position": 150, "rank": 1}]')
config = replace(own["config"], faults=plan, workers=2, checkpoint_every_steps=40, validate_every_steps=None)
config = replace(config, snapshots_outlive=False)
print(train_own(replace(own["job"], config=config, learn=learn)).name)
"""


@pytest.mark.drill
def test_a_sharded_task_on_two_workers_outlives_one_of_them_and_goes_on_from_its_shards(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SHARDED, str(tmp_path), str(ROOT / "docs" / "own_job.py")]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=600, check=False, cwd=tmp_path, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "position-000000000300" in done.stdout
    events = [event for event in read_ledger(tmp_path / "ledger.jsonl").events if event.subject == "sines"]
    assert [event.kind for event in events].count("run_started") == 2
    (again,) = [event for event in events if event.kind == "restored"]
    assert again.data["checkpoint"] == "position-000000000120"
    newest = newest_healthy(Home.find(tmp_path).checkpoints("sines", SystemClock()))
    assert newest is not None
    assert sorted(newest.manifest.files)[0] == "shard-00000-of-00002.safetensors"
    listed = subprocess.run(
        [sys.executable, "-m", "failsoft.cli.main", "ckpt", "verify", "sines", "--json", "--home", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert listed.returncode == 0, listed.stdout + listed.stderr
    assert json.loads(listed.stdout)
