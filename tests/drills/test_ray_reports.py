"""What Ray itself knows of a run's checkpoints in the end, with a remote store that works, refuses or hangs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from failsoft.artifacts.remote_place import place_of
from failsoft.artifacts.remote_store import RemoteStore
from failsoft.artifacts.store import ArtifactStore
from failsoft.health.clock import SystemClock
from failsoft.health.ledger import Event, read_ledger
from failsoft.training.ray_settings import RaySettings
from failsoft.training.ray_train import run_attempt
from tests.drills.reported_job import ReportedJob, Trouble, build_reported

pytestmark = [
    pytest.mark.drill,
    pytest.mark.usefixtures("ray_local"),
    pytest.mark.filterwarnings("ignore:`use_:DeprecationWarning"),  # Ray warns of its own settings
]

NEWEST = "position-000000000060"


def told(folder: Path, *kinds: str) -> list[Event]:
    return [event for event in read_ledger(folder / "ledger.jsonl").events if event.kind in kinds]


def ran(folder: Path, remote: str, *, trouble: Trouble = Trouble.NONE, wait_at_end_s: float = 60.0) -> None:
    """A run of two workers that nothing ends before its time; what Ray and our store have in the end is the same."""
    job = ReportedJob(folder=folder, remote=remote, trouble=trouble, wait_at_end_s=wait_at_end_s)
    settings = RaySettings(folder=folder, ledger=folder / "ledger.jsonl", workers=2)
    assert run_attempt(build_reported, job, settings) is None
    assert [event.kind for event in told(folder, "run_started", "run_finished")] == ["run_started", "run_finished"]
    published = [str(event.data["name"]) for event in told(folder, "checkpoint_published")]
    assert published[-1] == NEWEST
    listed: dict[str, Any] = json.loads((folder / "checkpoint_manager_snapshot.json").read_text("utf-8"))
    assert listed["latest_checkpoint_result"]["checkpoint_dir_name"] == f"checkpoints/{NEWEST}"
    known = [entry["checkpoint_dir_name"] for entry in listed["checkpoint_results"]]
    assert known == [f"checkpoints/{name}" for name in published]
    store = ArtifactStore(folder / "checkpoints", SystemClock(), kind="checkpoint")
    there = sorted(artifact.name for artifact in store.listing())
    assert there == published[-3:]  # whole, and Ray has removed none that our rules keep


def test_ray_knows_the_newest_checkpoint_and_its_copy_is_there(tmp_path: Path) -> None:
    remote = f"file://{tmp_path / 'there'}"
    ran(tmp_path / "run", remote)
    there = RemoteStore(place_of(remote), kind="checkpoint").shelf().there
    assert max(int(one.manifest.meta["position"]) for one in there) == 60


@pytest.mark.parametrize("trouble", [Trouble.REFUSES, Trouble.HANGS])
def test_a_store_in_trouble_ends_no_worker_and_holds_none_at_its_end(tmp_path: Path, trouble: Trouble) -> None:
    ran(tmp_path / "run", f"file://{tmp_path / 'there'}", trouble=trouble, wait_at_end_s=1.0)
    assert told(tmp_path / "run", "checkpoint_mirror_dropped")
    assert not told(tmp_path / "run", "checkpoint_mirrored")
