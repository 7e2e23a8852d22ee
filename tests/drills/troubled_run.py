"""One attempt of the troubled toy run on Ray, and what it left."""

from __future__ import annotations

from pathlib import Path

from failsoft.artifacts.store import ArtifactStore
from failsoft.health.clock import SystemClock
from failsoft.health.ledger import Event, read_ledger
from failsoft.training.checkpoints.checkpoint import newest_healthy
from failsoft.training.ray_train import RaySettings, run_attempt
from failsoft.training.survival.watch_policy import WatchPolicy
from tests.drills.troubled_job import TOTAL_BATCHES, TroubledJob, build_troubled

WATCH = WatchPolicy(step_s=20.0, tick_s=0.2, muster_s=60.0)
"""Steps of a moment, on a machine that may stand still for seconds, are no hang."""


def attempt(job: TroubledJob, watch: WatchPolicy = WATCH) -> str | None:
    settings = RaySettings(folder=job.folder, ledger=job.folder / "ledger.jsonl", workers=2, watch=watch)
    return run_attempt(build_troubled, job, settings)


def final_digest(folder: Path) -> str:
    newest = newest_healthy(ArtifactStore(folder / "checkpoints", SystemClock(), kind="checkpoint"))
    assert newest is not None
    assert newest.manifest.meta["position"] == TOTAL_BATCHES
    return newest.manifest.files["state.safetensors"].digest


def told(folder: Path, kind: str) -> list[Event]:
    return [event for event in read_ledger(folder / "ledger.jsonl").events if event.kind == kind]
