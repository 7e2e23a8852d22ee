"""The exporter of a run's driver: it tells what the run leaves, and whatever it meets, the run goes on."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from failsoft.health.clock import SystemClock
from failsoft.health.ledger import Ledger, Side
from failsoft.training.accounting.run_metrics import SEEN_NAME
from train_jobs.config import JobConfig
from train_jobs.exporting import exporting


def test_what_was_told_when_the_block_ends_is_counted(tmp_path: Path) -> None:
    config = JobConfig(home=tmp_path, run="night")
    folder = tmp_path / "runs" / "night"
    folder.mkdir(parents=True)
    with exporting(config):
        ledger = Ledger(tmp_path / "ledger.jsonl", SystemClock(), side=Side.TRAINING, subject="night")
        ledger.record("rolled_back", "", undone_steps=3)
    assert (folder / SEEN_NAME).read_text("utf-8").split()[0] == "1"


def test_a_run_whose_files_can_not_be_read_is_not_ended_by_its_exporter(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = JobConfig(home=tmp_path, run="night")
    (tmp_path / "ledger.jsonl").write_bytes(b"")
    (tmp_path / "runs" / "night" / "position").mkdir(parents=True)  # where a file should be
    with caplog.at_level(logging.WARNING), exporting(config):
        pass
    assert "metrics of training are not exported" not in caplog.text, "what can't be read is not known, and no failure"


def test_an_exporter_begins_before_its_run_has_a_folder(tmp_path: Path) -> None:
    with exporting(JobConfig(home=tmp_path, run="night")):
        pass
    assert not (tmp_path / "runs").exists()
