"""The whole job on a real Ray: faults on the way, the same weights at the end; and real input up to its floors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from failsoft.health.backoff import BackoffPolicy
from failsoft.health.faults import Fault, FaultKind, FaultPlan, burst
from failsoft.health.ledger import read_ledger
from train_jobs.config import JobConfig, Preset
from train_jobs.intent_ner import run_job

pytestmark = [
    pytest.mark.drill,
    pytest.mark.usefixtures("ray_local", "_threads_as_before"),
    pytest.mark.filterwarnings("ignore:`use_:DeprecationWarning"),  # Ray warns of its own settings
]

QUICK = BackoffPolicy(first_s=0.2, cap_s=1.0)


@pytest.fixture
def _threads_as_before() -> Iterator[None]:
    """The job sets torch's threads for its process; give the test run back what it had."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def config(home: Path, run: str, *faults: Fault, workers: int = 1) -> JobConfig:
    return JobConfig(
        home=home,
        run=run,
        preset=Preset.DEMO,
        workers=workers,
        faults=FaultPlan(faults=faults),
        snapshot_every_steps=20,
        checkpoint_every_steps=40,
        max_batches=160,
        backoff=QUICK,
        publish=False,
    )


@pytest.mark.parametrize("workers", [1, 2])
def test_a_job_that_loses_its_worker_three_times_ends_with_the_weights_of_the_undisturbed_job(
    tmp_path: Path, workers: int
) -> None:
    nan_burst = burst(FaultKind.NAN_BATCH, first=70, count=5)
    kills = [Fault(kind=FaultKind.KILL_WORKER, position=at, rank=workers - 1) for at in (55, 90, 130)]
    undisturbed = run_job(config(tmp_path, "undisturbed", *nan_burst, workers=workers))
    killed = run_job(config(tmp_path, "killed", *nan_burst, *kills, workers=workers))
    assert killed.weights_digest == undisturbed.weights_digest
    assert killed.quality == undisturbed.quality
    assert (killed.summary.worker_deaths, killed.summary.rollbacks, killed.summary.batches_refused) == (3, 1, 5)
    kinds = [event.kind for event in read_ledger(tmp_path / "ledger.jsonl").events if event.subject == "killed"]
    assert "attempt_failed" in kinds  # the second death of an attempt goes to the supervisor, not to Ray


def test_a_job_that_is_complete_is_not_trained_again(tmp_path: Path) -> None:
    first = run_job(config(tmp_path, "once"))
    second = run_job(config(tmp_path, "once"))
    assert second.weights_digest == first.weights_digest
    assert second.summary.attempts == 1


def test_snips_trained_from_scratch_reaches_both_floors(tmp_path: Path, snips_dir: Path) -> None:
    result = run_job(JobConfig(home=tmp_path, run="snips", data=snips_dir, preset=Preset.SNIPS, publish=False))
    assert result.quality["intent_accuracy"] >= 0.98
    assert result.quality["slot_f1"] >= 0.88
    _, crowd, _ = os.getloadavg()  # of five minutes; where others use the cores as well, it takes that much longer
    assert result.summary.took_s < 6 * 60 * max(1.0, crowd / (os.cpu_count() or 1))
