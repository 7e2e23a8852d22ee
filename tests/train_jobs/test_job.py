"""The job around its run."""

from __future__ import annotations

from pathlib import Path

import pytest

from failsoft.errors import ConfigError
from failsoft.training.checkpoints.driver_lock import sole_driver
from failsoft.training.progress import PROGRESS_NAME
from train_jobs.config import JobConfig
from train_jobs.job import run_job


def test_a_run_that_is_being_trained_is_not_begun_a_second_time_and_stays_untouched(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "twice"
    with sole_driver(folder), pytest.raises(ConfigError, match="'twice' is being trained by"):
        run_job(JobConfig(home=tmp_path, run="twice"))
    assert not (folder / PROGRESS_NAME).exists()
