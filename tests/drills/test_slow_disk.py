"""Storage like a far NFS server: each question to it takes 0.3 s, then 2 s, then it hangs, then it is quick again.

Training keeps its pace, gateways their answers, and nothing on the disk is torn.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

from failsoft.artifacts.store import ArtifactStore
from failsoft.health.clock import SystemClock
from failsoft.health.ledger import read_ledger
from tests.conftest import ROOT
from tests.drills.slow_disk import WHY_NOT, SlowDisk, slow_disk
from tests.drills.slow_disk_process import EACH, PHASES, STEP_S

pytestmark = [pytest.mark.drill, pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")]
ONCE_S = 1.5
"""The work may stand for so long once: until it is known that the disk is slow (``Aside.PATIENCE_S``, and some)."""


def trained(disk: SlowDisk, run: Path, dial: Path) -> list[float]:
    """When each step of the toy run began."""
    command = [sys.executable, "-m", "tests.drills.slow_disk_process", str(run), str(dial)]
    environment = os.environ | disk.environment | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return [float(began_s) for began_s in json.loads(done.stdout.splitlines()[-1])]


def test_a_training_keeps_its_pace_on_a_disk_that_slows_down_and_hangs_and_leaves_nothing_torn(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    with slow_disk(tmp_path / "disk", tmp_path) as disk:
        run = tmp_path / "disk" / "run"
        began_s = trained(disk, run, disk.library.with_suffix(".dial"))
        steps_s = [later - earlier for earlier, later in pairwise(began_s)]
        took_s = {name: steps_s[at * EACH : (at + 1) * EACH] for at, name in enumerate(PHASES)}
        for name, took in took_s.items():
            print(
                f"{name}: a step {median(took) * 1000:.1f} ms, longest {max(took):.2f} s, {EACH} in {sum(took):.1f} s"
            )
        quick_s = sum(took_s["quick"])
        assert quick_s < EACH * STEP_S * 3, "this machine is too busy to say anything"
        for name in ("slow", "slower", "hangs"):
            assert sum(took_s[name]) < 1.5 * quick_s + ONCE_S, name
        assert max(steps_s) < ONCE_S
        reading = read_ledger(run / "ledger.jsonl")
        store = ArtifactStore(run / "checkpoints", SystemClock(), kind="checkpoint")
        whole = [store.open(artifact.name) for artifact in store.listing()]  # each byte verified
    assert reading.torn_lines == 0
    assert reading.events[-1].kind == "run_finished"
    positions = [event.count("position") for event in reading.events if event.kind == "checkpoint_handed_over"]
    assert positions == sorted(positions)
    assert len(whole) >= 2
