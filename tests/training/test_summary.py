from __future__ import annotations

from pathlib import Path
from typing import Any

from failsoft.health.clock import ManualClock
from failsoft.health.ledger import Ledger, Side, read_ledger
from failsoft.training.summary import SUPERVISOR, RunSummary, summarise


def told(path: Path, *story: tuple[float, str, dict[str, Any]]) -> RunSummary:
    clock = ManualClock(wall_s=0.0)
    ledger = Ledger(path, clock, side=Side.TRAINING, subject="run")
    Ledger(path, clock, side=Side.TRAINING, subject="another").record("batch_refused", "not ours", position=1)
    for at_s, kind, data in story:
        clock.advance(at_s - clock.wall_s())
        ledger.record(kind, "", **data)
    return summarise(read_ledger(path).events, run="run")


def start(repeated: int) -> dict[str, Any]:
    return {"total_batches": 50, "repeated_batches": repeated}


def test_a_run_without_a_story_is_all_zeros(tmp_path: Path) -> None:
    assert told(tmp_path / "ledger.jsonl") == RunSummary()


def test_what_a_restart_meets_again_counts_once(tmp_path: Path) -> None:
    burst = [(2.0, "batch_refused", {"position": position}) for position in (7, 8)]
    rollback = (3.0, "rolled_back", {"position": 9, "undone_steps": 4})
    kill = (4.0, "planned_fault", {"fault": "kill_worker", "position": 12})
    summary = told(
        tmp_path / "ledger.jsonl",
        (1.0, "run_started", start(0)),
        *burst,
        rollback,
        kill,
        (9.0, "run_started", start(12)),
        (9.5, "resumed", {}),
        *[(10.0, kind, data) for _, kind, data in burst],
        (10.0, *rollback[1:]),
        (20.0, "run_finished", {"step": 44}),
    )
    assert (summary.batches_refused, summary.rollbacks, summary.steps_undone) == (2, 1, 4)
    assert (summary.worker_deaths, summary.attempts, summary.batches_repeated) == (1, 2, 12)
    assert (summary.resume_times_s, summary.took_s) == ((5.5,), 19.0)
    assert summary.dropped_fraction == 2 / 50


def test_what_a_restart_undid_and_did_not_meet_again_does_not_count(tmp_path: Path) -> None:
    summary = told(
        tmp_path / "ledger.jsonl",
        (1.0, "run_started", start(0)),
        (2.0, "batch_refused", {"position": 3}),
        (2.0, "batch_refused", {"position": 12}),
        (2.5, "rolled_back", {"position": 17, "undone_steps": 4}),
        (3.0, "run_started", {**start(10), "position": 10}),
        (4.0, "rolled_back", {"position": 50, "undone_steps": 1}),
        (5.0, "run_started", {**start(0), "position": 50}),
        (9.0, "run_finished", {"step": 48}),
    )
    assert (summary.batches_refused, summary.rollbacks, summary.steps_undone) == (1, 1, 1)


def test_a_run_whose_end_the_supervisor_tells_has_lost_its_worker(tmp_path: Path) -> None:
    end = {"step": 48, "by": SUPERVISOR}
    summary = told(tmp_path / "ledger.jsonl", (1.0, "run_started", start(0)), (9.0, "run_finished", end))
    assert (summary.worker_deaths, summary.steps_applied, summary.finished) == (1, 48, True)


def test_a_run_that_was_started_again_after_its_end_has_lost_no_worker(tmp_path: Path) -> None:
    end = (3.0, "run_finished", {"step": 50})
    summary = told(tmp_path / "ledger.jsonl", (1.0, "run_started", start(0)), end, (5.0, "run_started", start(0)), end)
    assert summary.worker_deaths == 0


def test_a_summary_says_which_part_of_the_time_was_productive(tmp_path: Path) -> None:
    begin = (1.0, "run_started", {**start(0), "position": 0})
    refused = (3.0, "batch_refused", {"position": 20, "took_s": 0.5})
    summary = told(tmp_path / "ledger.jsonl", begin, refused, (6.0, "run_finished", {"step": 49}))
    assert summary.ettr == 4.5 / 5.0
    assert (summary.parts_s["productive"], summary.parts_s["refused batches"]) == (4.5, 0.5)
    assert summary.parts_s["load state"] is None
