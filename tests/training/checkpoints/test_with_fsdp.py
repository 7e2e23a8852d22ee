"""The example of a model in shards does what it says, started as a reader would start it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.rank_pair import PATIENCE_S


def run(home: Path, processes: int) -> list[str]:
    """What its first process prints."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    done = subprocess.run(
        [*launcher, str(ROOT / "docs/with_fsdp.py"), str(home)],
        cwd=home,
        env=os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    return done.stdout.splitlines()


def test_the_example_goes_on_from_its_shards_on_another_number_of_processes(tmp_path: Path) -> None:
    begun = run(tmp_path, 2)
    assert [line.split(":")[0] for line in begun] == [f"2 ranks, begun at 0, are at {at}" for at in (50, 100, 150, 200)]
    shelf = tmp_path / "runs" / "fsdp" / "checkpoints"
    there = sorted(path for path in shelf.glob("position-*") if path.is_dir())  # a busy writer may have passed one over
    for later in there[1:]:
        shutil.rmtree(later)
    kept = int(there[0].name.removeprefix("position-"))
    again = run(tmp_path, 1)
    ends = [f"1 ranks, begun at {kept}, are at {at}" for at in range(50, 201, 50) if at > kept]
    assert [line.split(":")[0] for line in again] == ends
    losses = [float(each[-1].split()[-1]) for each in (begun, again)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-3)
