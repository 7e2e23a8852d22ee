"""A worker is killed at any moment on a real Ray, and the run ends where the undisturbed run ends."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

from failsoft.artifacts.store import ArtifactStore
from failsoft.health.clock import SystemClock
from failsoft.health.faults import Fault, FaultKind, FaultPlan, burst
from failsoft.health.ledger import read_ledger
from failsoft.training.checkpoints.checkpoint import newest_healthy
from failsoft.training.ray_train import RaySettings, run_attempt
from failsoft.training.summary import RunSummary, summarise
from tests.drills.toy_job import ToyJob, build_toy

pytestmark = pytest.mark.filterwarnings("ignore:`use_:DeprecationWarning")  # Ray warns of its own settings


def ended_with(folder: Path, workers: int, *faults: Fault, behind: bool = False) -> tuple[str, RunSummary]:
    """Digest of the final state, and what happened."""
    job = ToyJob(folder=folder, faults=FaultPlan(faults=faults), behind=behind)
    error = run_attempt(build_toy, job, RaySettings(folder=folder, ledger=folder / "ledger.jsonl", workers=workers))
    assert error is None
    last = newest_healthy(ArtifactStore(folder / "checkpoints", SystemClock(), kind="checkpoint"))
    assert last is not None
    summary = summarise(read_ledger(folder / "ledger.jsonl").events, run=folder.name)
    return last.manifest.files["state.safetensors"].digest, summary


@pytest.mark.drill
@pytest.mark.usefixtures("ray_local")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_worker_killed_at_a_random_step_changes_no_bit_of_the_result(tmp_path: Path, workers: int) -> None:
    position = random.SystemRandom().randrange(1, 60)
    nan_burst = burst(FaultKind.NAN_BATCH, first=22, count=5, ranks=(workers - 1,))
    undisturbed, _ = ended_with(tmp_path / "undisturbed", workers, *nan_burst)
    kill = Fault(kind=FaultKind.KILL_WORKER, position=position, rank=workers - 1)
    killed, summary = ended_with(tmp_path / "killed", workers, *nan_burst, kill)
    assert killed == undisturbed, f"killed before batch {position}"
    assert (summary.worker_deaths, summary.attempts, summary.rollbacks, summary.batches_refused) == (1, 2, 1, 5)
    assert summary.batches_repeated <= 10 + 1 + 5


@pytest.mark.usefixtures("ray_local")
def test_ray_runs_the_loop_and_its_torn_list_of_checkpoints_does_not_matter(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "checkpoint_manager_snapshot.json").write_text('{"checkpoint_results": [', "utf-8")
    _, summary = ended_with(folder, 1)
    assert (summary.finished, summary.steps_applied, summary.checkpoints) == (True, 60, 6)


@pytest.mark.drill
@pytest.mark.usefixtures("ray_local")
def test_a_run_whose_checkpoints_are_written_behind_it_ends_the_same_after_a_kill(tmp_path: Path) -> None:
    undisturbed, _ = ended_with(tmp_path / "undisturbed", 2)
    kill = Fault(kind=FaultKind.KILL_WORKER, position=random.SystemRandom().randrange(1, 60), rank=0)
    killed, summary = ended_with(tmp_path / "killed", 2, kill, behind=True)
    assert killed == undisturbed, f"killed before batch {kill.position}"
    assert (summary.worker_deaths, summary.attempts, summary.finished) == (1, 2, True)


@pytest.mark.drill
@pytest.mark.usefixtures("ray_local")
def test_an_old_checkpoint_of_rays_list_that_is_gone_does_not_matter(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    ended_with(folder, 1, behind=True)
    listed = json.loads((folder / "checkpoint_manager_snapshot.json").read_text("utf-8"))["checkpoint_results"]
    assert listed, "Ray was told of no checkpoint"
    there = sorted((folder / "checkpoints").glob("position-*"))
    shutil.rmtree(there[0])
    shutil.rmtree(there[-1])
    _, summary = ended_with(folder, 1, behind=True)
    assert summary.finished
