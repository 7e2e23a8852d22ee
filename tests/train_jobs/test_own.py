"""The example of an own task, without Ray; ``tests/drills/test_own_job.py`` runs it on Ray."""

from __future__ import annotations

import os
import runpy
import signal
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from failsoft.artifacts.home import Home
from failsoft.errors import ConfigError, IncompatibleArtifactError, PreemptedError
from failsoft.health.clock import Clock, ManualClock, SystemClock
from failsoft.health.faults import FaultPlan
from failsoft.health.ledger import read_ledger
from failsoft.training.checkpoints.checkpoint import deliver_here
from failsoft.training.ranks import SoloRank
from tests.conftest import ROOT
from train_jobs.config import JobConfig
from train_jobs.own import OwnJob, train_own
from train_jobs.own_build import build_own, final_of, load_model

TROUBLE = """[{"kind": "nan_batch", "position": 40}, {"kind": "out_of_memory", "position": 90, "above_samples": 16}]"""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OwnJob:
    torch.set_num_threads(1)
    monkeypatch.setattr(sys, "argv", ["own_job.py", str(tmp_path)])
    found: OwnJob = runpy.run_path(str(ROOT / "docs" / "own_job.py"))["job"]
    return found


def run_here(job: OwnJob) -> None:
    build_own(job, SoloRank(), deliver_here).run()


def test_an_own_task_has_the_guard_the_memory_ladder_validation_and_checkpoints(job: OwnJob, tmp_path: Path) -> None:
    job = replace(job, config=replace(job.config, faults=FaultPlan.from_json(TROUBLE), snapshots_outlive=False))
    run_here(job)
    final = final_of(Home.find(tmp_path).checkpoints("sines", SystemClock()))
    assert final is not None
    assert (final.manifest.meta["position"], final.manifest.meta["step"]) == (300, 299)
    learning = job.learn(torch.device("cpu"))
    held, model = learning.validation, load_model(learning.model, final)
    assert held is not None
    with torch.no_grad():
        assert held.validate(model, torch.arange(256).numpy())["val_loss"] < 0.2
    kinds = {event.kind for event in read_ledger(tmp_path / "ledger.jsonl").events}
    assert kinds >= {"batch_refused", "degradation_began", "validated", "checkpoint_published", "run_finished"}


def test_an_own_run_goes_on_where_it_stopped_and_refuses_another_batch_size(job: OwnJob, tmp_path: Path) -> None:
    short = replace(job, config=replace(job.config, checkpoint_every_steps=10, snapshots_outlive=False))
    loop = build_own(replace(short, total_batches=300), SoloRank(), deliver_here)
    told = iter([None] * 25)
    loop.told = lambda: next(told, "enough")
    with pytest.raises(Exception, match="enough"):
        loop.run()
    with pytest.raises(IncompatibleArtifactError, match="global_batch"):
        run_here(replace(short, global_batch=32))
    run_here(short)
    restored = [event for event in read_ledger(tmp_path / "ledger.jsonl").events if event.kind == "restored"]
    assert [event.data["position"] for event in restored] == [25]


def test_an_own_run_keeps_off_a_folder_of_failsoft_train(job: OwnJob, tmp_path: Path) -> None:
    (tmp_path / "runs" / "sines" / "prepared").mkdir(parents=True)
    with pytest.raises(ConfigError, match="begun by failsoft train"):
        train_own(job)


def test_an_own_task_is_said_in_at_most_forty_lines() -> None:
    lines = (ROOT / "docs" / "own_job.py").read_text("utf-8").splitlines()
    code = [line for line in lines if line.strip() and not line.strip().startswith('"""')]
    assert len(lines) <= 60
    assert len(code) <= 40


@pytest.mark.parametrize("name", ["num_samples", "global_batch", "total_batches"])
def test_a_count_that_is_none_is_refused(name: str, tmp_path: Path) -> None:
    counts: dict[str, Any] = {"num_samples": 8, "global_batch": 4, "total_batches": 2} | {name: 0}
    with pytest.raises(ConfigError, match=f"{name} is 0"):
        OwnJob(config=JobConfig(home=tmp_path, run="r"), learn=lambda _device: pytest.fail("called"), **counts)


class LosesStorage:
    """A driver whose first attempt ends with a SIGTERM to its process, and with the home no folder any more."""

    def __init__(self, job: OwnJob, _clock: Clock) -> None:
        self.home = job.config.home

    def start(self) -> None:
        """Nothing is prepared."""

    def excluded(self) -> frozenset[str]:
        return frozenset()

    def rooms(self) -> None:
        """Not known."""

    def attempt(self, _workers: int, _excluded: frozenset[str]) -> str:
        self.home.rename(self.home.with_name("aside"))
        self.home.touch()
        os.kill(os.getpid(), signal.SIGTERM)
        return "a worker died"


def test_an_own_run_that_is_told_to_leave_does_not_wait_for_storage_that_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("train_jobs.own.connected", lambda _config: nullcontext())
    monkeypatch.setattr("train_jobs.own_build.OwnDriver", LosesStorage)
    config, clock = JobConfig(home=tmp_path / "home", run="r"), ManualClock()
    own = OwnJob(
        config=config, learn=lambda _device: pytest.fail("called"), num_samples=8, global_batch=4, total_batches=2
    )
    with pytest.raises(PreemptedError, match="told to leave while the run's storage was away"):
        train_own(own, clock=clock)
    assert clock.monotonic_s() < 60.0
