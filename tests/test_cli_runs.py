"""What ``failsoft runs``, ``goodput`` and ``verify`` print, on folders as runs leave them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from failsoft.cli import runs as _runs  # noqa: F401 -- hangs its commands on the app
from failsoft.cli.app import app
from failsoft.health.clock import ManualClock, SystemClock
from failsoft.health.ledger import Ledger, Side, read_ledger
from failsoft.training.accounting.consumed import ConsumedPolicy, ConsumedRecord
from failsoft.training.accounting.goodput import account, as_metrics
from failsoft.training.accounting.stretches import Part
from failsoft.training.accounting.whereabouts import all_whereabouts, whereabouts
from failsoft.training.batches import GlobalBatches
from failsoft.training.progress import Phase, PositionMark, Progress, ProgressFile
from failsoft.training.ranks import SoloRank
from tests.training.accounting.test_goodput import BEGIN

STORY = (
    *BEGIN,
    (15.0, "checkpoint_handed_over", {"position": 10, "stall_s": 0.25}),
    (25.0, "attempt_failed", {"wait_s": 10.0}),
    (35.0, "attempt_began", {}),
    (39.0, "workers_up", {}),
    (40.0, "run_started", {"position": 10, "repeated_batches": 8, "last_seen_s": 23.0, "total_batches": 30}),
)


def left_by_a_run(home: Path, *, ended: bool, name: str = "first", at_s: float = 0.0) -> None:
    clock = ManualClock(wall_s=at_s)
    ledger = Ledger(home / "ledger.jsonl", clock, side=Side.TRAINING, subject=name)
    end = [(60.0, "run_finished", {"position": 30, "step": 30})] if ended else []
    for after_s, kind, data in [*STORY, *end]:
        clock.jump_wall(at_s + after_s - clock.wall_s())
        moved = {"last_seen_s": data["last_seen_s"] + at_s} if "last_seen_s" in data else {}
        ledger.record(
            kind, "as planned", **({"total_batches": 30, "position": 0, "repeated_batches": 0} | data | moved)
        )
    phase = Phase.FINISHED if ended else Phase.TRAINING
    progress = Progress(phase=phase, attempt=2, position=30 if ended else 21, total=30, step=20, loss=0.5, refused=1)
    ProgressFile(home / "runs" / name, clock).write(progress)


def failsoft(home: Path, *arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, [*arguments, "--home", str(home)])
    assert done.exit_code == code, done.output
    return done.output


def test_runs_lists_each_run_with_what_it_went_through(tmp_path: Path) -> None:
    left_by_a_run(tmp_path, ended=True)
    shown = failsoft(tmp_path, "runs")
    assert all(word in shown for word in ("first", "finished", "30 of 30", "0.5"))
    (row,) = json.loads(failsoft(tmp_path, "runs", "--json"))
    assert (row["restarts"], row["refused"], row["silent"]) == (1, 1, False)
    assert row["goodput"]["ettr"] == pytest.approx((10 - 0.25 + 20) / 60)


def test_a_run_that_should_be_at_work_and_says_nothing_is_silent_and_not_called_training(tmp_path: Path) -> None:
    now_s = SystemClock().wall_s()
    left_by_a_run(tmp_path, ended=False, name="old", at_s=now_s - 9000.0)
    left_by_a_run(tmp_path, ended=False, name="young", at_s=now_s - 41.0)
    events = read_ledger(tmp_path / "ledger.jsonl").events
    young, old = all_whereabouts(tmp_path / "runs", events, now_s=now_s)
    assert (young.state, young.silent, old.state) == ("training", False, "silent (training)")
    assert old.age_s == pytest.approx(8960.0, abs=1.0)
    assert "silent (training)" in failsoft(tmp_path, "runs")


def test_a_clock_that_is_ahead_is_said_to_be_and_a_run_without_a_word_has_no_age(tmp_path: Path) -> None:
    left_by_a_run(tmp_path, ended=False, at_s=1000.0)
    events = read_ledger(tmp_path / "ledger.jsonl").events
    assert whereabouts(tmp_path / "runs" / "first", events, now_s=500.0).age_s == -540.0
    (tmp_path / "runs" / "empty").mkdir()
    (tmp_path / "runs" / "theirs").mkdir()
    ledger = Ledger(tmp_path / "ledger.jsonl", ManualClock(wall_s=5.0), side=Side.TRAINING, subject="theirs")
    ledger.record("run_started", "", total_batches=40, position=0, step=0)
    ledger.record("batch_refused", "loss is not finite", position=4, step=4)
    ledger.record("run_finished", "", position=40, step=39)
    told = whereabouts(tmp_path / "runs" / "theirs", read_ledger(tmp_path / "ledger.jsonl").events, now_s=500.0)
    assert (told.position, told.total, told.step, told.refused, told.silent) == (40, 40, 39, 1, False)

    empty = whereabouts(tmp_path / "runs" / "empty", events, now_s=500.0)
    assert (empty.age_s, empty.silent, empty.state) == (None, True, "silent (no progress file)")
    assert "never" in failsoft(tmp_path, "runs")


def test_a_word_from_far_ahead_neither_makes_a_dead_run_seem_at_work_nor_one_at_work_seem_dead(tmp_path: Path) -> None:
    left_by_a_run(tmp_path, ended=False, at_s=90_000.0)  # by a clock that was a day ahead
    look = whereabouts(tmp_path / "runs" / "first", read_ledger(tmp_path / "ledger.jsonl").events, now_s=5_000.0)
    assert (look.state, look.age_s) == ("silent (training)", -85_040.0)
    ProgressFile(tmp_path / "runs" / "first", ManualClock(wall_s=5_000.0)).write(Progress(phase=Phase.TRAINING))
    look = whereabouts(tmp_path / "runs" / "first", read_ledger(tmp_path / "ledger.jsonl").events, now_s=5_001.0)
    assert (look.state, look.age_s) == ("training", 1.0), "its clock was set right, and it goes on"


def test_the_time_of_a_run_at_work_goes_on_to_its_last_batch(tmp_path: Path) -> None:
    now_s = SystemClock().wall_s()
    left_by_a_run(tmp_path, ended=False, at_s=now_s - 100.0)
    with PositionMark(tmp_path / "runs" / "first").open() as set_mark:
        set_mark(21)
    events = read_ledger(tmp_path / "ledger.jsonl").events
    assert whereabouts(tmp_path / "runs" / "first", events, now_s=now_s).account.wall_s == pytest.approx(100.0, abs=5.0)


def test_one_run_is_shown_with_its_numbers_its_time_and_its_last_events(tmp_path: Path) -> None:
    left_by_a_run(tmp_path, ended=True)
    shown = failsoft(tmp_path, "runs", "first")
    assert all(word in shown for word in ("8 batches worked on again", "detect a death", "run_finished", "as planned"))


def test_goodput_prints_parts_that_add_up_and_draws_them(tmp_path: Path) -> None:
    left_by_a_run(tmp_path, ended=True)
    found: dict[str, Any] = json.loads(failsoft(tmp_path, "goodput", "first", "--json"))
    assert sum(value for value in found["parts_s"].values() if value is not None) == pytest.approx(found["wall_s"])
    assert found["parts_s"]["back-off"] == 10.0
    picture = tmp_path / "out" / "time.png"
    assert "ETTR 49.58%" in failsoft(tmp_path, "goodput", "first", "--plot", str(picture))
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_report_is_one_page_and_one_picture_that_stand_alone(tmp_path: Path) -> None:
    left_by_a_run(tmp_path, ended=True)
    ledger = Ledger(tmp_path / "ledger.jsonl", SystemClock(), side=Side.TRAINING, subject="first")
    ledger.record("words_lost", "<script>alert(1)</script> [red]")
    told = failsoft(tmp_path, "report", "first")
    page = (tmp_path / "runs" / "first" / "report.html").read_text("utf-8")
    assert "report.html" in told
    assert (tmp_path / "runs" / "first" / "report.png").read_bytes().startswith(b"\x89PNG")
    assert "Finished: 30 of 30 batches" in page
    assert "back-off" in page
    assert "attempt_failed" in page
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "[red]" in page
    assert not any(mark in page for mark in ("http://", "https://", 'src="/', "<link"))


def test_a_picture_that_could_not_be_written_is_not_called_drawn(tmp_path: Path) -> None:
    left_by_a_run(tmp_path, ended=True)
    done = CliRunner().invoke(app, ["goodput", "first", "--plot", "/dev/full", "--home", str(tmp_path)])
    assert isinstance(done.exception, OSError)
    assert "drawn" not in done.output


def test_goodput_speaks_prometheus_and_leaves_out_what_is_not_known(tmp_path: Path) -> None:
    left_by_a_run(tmp_path, ended=True)
    shown = failsoft(tmp_path, "goodput", "first", "--metrics")
    assert 'failsoft_run_seconds{run="first",part="back-off"} 10.0\n' in shown
    assert as_metrics(account((), run='a"b')).count("\n") == 4 + len(Part)
    (tmp_path / "ledger.jsonl").unlink()
    old = Ledger(tmp_path / "ledger.jsonl", ManualClock(), side=Side.TRAINING, subject="first")
    old.record("run_started", "no workers_up before it", total_batches=30, repeated_batches=0)
    assert 'part="load state"' not in failsoft(tmp_path, "goodput", "first", "--metrics")


@pytest.mark.parametrize("command", ["goodput", "report", "verify", "runs"])
def test_an_unknown_run_is_an_error_that_names_those_there(tmp_path: Path, command: str) -> None:
    left_by_a_run(tmp_path, ended=True)
    done = CliRunner().invoke(app, [command, "secnod", "--home", str(tmp_path)])
    assert "there: first" in str(done.exception)


def test_a_home_without_runs_says_how_to_start_one(tmp_path: Path) -> None:
    assert "failsoft train" in failsoft(tmp_path, "runs")


def consume(run: Path, *positions: int) -> None:
    batches = GlobalBatches(num_samples=12, global_batch=4, seed=1)
    record = ConsumedRecord(run, SoloRank())
    record.begin(position=0, batches=batches, total_batches=6)
    for position in positions:
        record.batch(position, batches.global_indices(position).tolist(), applied=True)
    record.close()


def test_verify_passes_an_exact_run_and_fails_one_that_lost_samples_naming_them(tmp_path: Path) -> None:
    consume(tmp_path / "runs" / "exact", *range(6))
    assert "not exact" not in failsoft(tmp_path, "verify", "exact")
    consume(tmp_path / "runs" / "lossy", 0, 2, 3, 4, 4)
    shown = failsoft(tmp_path, "verify", "lossy", code=2)
    assert "epoch 0, never:" in shown
    assert "epoch 1, twice:" in shown
    found = json.loads(failsoft(tmp_path, "verify", "lossy", "--json", code=2))
    assert [epoch["counts"]["never"] for epoch in found["epochs"]] == [4, 0]
    assert not found["sound"]


def test_a_run_without_a_record_is_told_how_to_keep_one(tmp_path: Path) -> None:
    left_by_a_run(tmp_path, ended=True)
    done = CliRunner().invoke(app, ["verify", "first", "--home", str(tmp_path)])
    assert "--record-consumed" in str(done.exception)


def test_snapshots_that_nobody_comes_for_are_shown_and_given_back_on_demand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAILSOFT_HOST_MEMORY", str(tmp_path / "memory"))
    left_by_a_run(tmp_path, ended=False)
    (tmp_path / "runs" / "first" / "host_memory.key").write_text("ab")
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    note = f"process {int(dead.stdout)} on {socket.gethostname()}\n"
    (tmp_path / "runs" / "first" / ".driver").write_text(note)
    folder = tmp_path / "memory" / f"failsoft-{os.getuid()}" / "ab" / "rank-0000-of-0001"
    folder.mkdir(parents=True)
    (folder / "body-1").write_bytes(bytes(3_000_000))
    shown = " ".join(failsoft(tmp_path, "runs").split())
    assert "3 MB of snapshots of run first lie in memory" in shown
    assert "failsoft runs --sweep" in shown
    assert "3 MB of left-over snapshots are given back" in failsoft(tmp_path, "runs", "--sweep")
    assert not folder.exists()
    assert "lie in memory" not in failsoft(tmp_path, "runs")


def test_verify_takes_a_record_with_a_gap_for_no_proof(tmp_path: Path) -> None:
    policy, batches = (
        ConsumedPolicy(block_positions=2, max_bytes=1024),
        GlobalBatches(num_samples=12, global_batch=4, seed=1),
    )
    record = ConsumedRecord(tmp_path / "runs" / "gap", SoloRank(), policy=policy)
    record.begin(position=0, batches=batches, total_batches=120)
    for position in range(120):
        record.batch(position, batches.global_indices(position).tolist(), applied=True)
    record.close()
    assert "not judged" in failsoft(tmp_path, "verify", "gap", code=2)
    found = json.loads(failsoft(tmp_path, "verify", "gap", "--json", code=2))
    assert (found["sound"], found["proven"]) == (True, False)
