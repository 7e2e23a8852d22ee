"""The job around its run."""

from __future__ import annotations

from pathlib import Path

import pytest

from failsoft.errors import ConfigError, CorpusError, DriverLostError
from failsoft.health.clock import ManualClock
from failsoft.training.checkpoints.driver_lock import sole_driver
from failsoft.training.progress import PROGRESS_NAME
from train_jobs.config import JobConfig
from train_jobs.job import HereDriver, run_job
from train_jobs.workload import Workload


def test_a_run_that_is_being_trained_is_not_begun_a_second_time_and_stays_untouched(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "twice"
    with sole_driver(folder), pytest.raises(ConfigError, match="'twice' is being trained by"):
        run_job(JobConfig(home=tmp_path, run="twice"))
    assert not (folder / PROGRESS_NAME).exists()


@pytest.mark.parametrize(
    ("error", "becomes"),
    [
        (OSError(116, "Stale file handle"), DriverLostError),  # another attempt, after a wait
        (CorpusError("line 3 of train.csv has no intent"), CorpusError),
        (ZeroDivisionError("ours"), ZeroDivisionError),
    ],
)
def test_only_storage_that_goes_while_a_run_is_prepared_costs_an_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, becomes: type[Exception]
) -> None:
    def fails(_config: JobConfig) -> Workload:
        raise error

    monkeypatch.setattr("train_jobs.job.prepare", fails)
    with pytest.raises(becomes, match=str(error.args[-1])) as raised:
        HereDriver(JobConfig(home=tmp_path, run="r"), ManualClock()).start()
    assert type(raised.value) is becomes
