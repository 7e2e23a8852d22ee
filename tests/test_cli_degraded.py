"""What the command line shows of a run that did less than it was asked to."""

from __future__ import annotations

import json
from pathlib import Path

from failsoft.health.clock import ManualClock
from failsoft.health.ledger import Ledger, Side
from failsoft.training.degradation import Degradation, DegradationKind, Degradations
from failsoft.training.progress import Phase, Progress, ProgressFile
from tests.test_cli_runs import failsoft


def left_degraded(home: Path) -> None:
    clock = ManualClock(wall_s=0.0)
    ledger = Ledger(home / "ledger.jsonl", clock, side=Side.TRAINING, subject="first")
    ledger.record("run_started", "", position=0, repeated_batches=0, total_batches=100)
    clock.advance(10.0)
    open_ = Degradations(lambda kind, why, **data: ledger.record(kind, why, position=25, **data))
    open_.began(Degradation(kind=DegradationKind.SLOW_RANK, name="rank 1", cause="1.8 times the median", level="3:1"))
    clock.advance(30.0)
    ledger.record("run_finished", "", position=100, step=100)
    ProgressFile(home / "runs" / "first", clock).write(Progress(phase=Phase.FINISHED, position=100, total=100))


def test_one_run_is_shown_with_the_fraction_that_was_degraded_and_how(tmp_path: Path) -> None:
    left_degraded(tmp_path)
    shown = " ".join(failsoft(tmp_path, "runs", "first").split())
    assert all(word in shown for word in ("75.0% of 100 batches degraded", "slow rank", "rank 1", "1.8 times", "open"))
    told = json.loads(failsoft(tmp_path, "runs", "first", "--json"))["summary"]["degraded"]
    assert (told["fraction_of_batches"], told["fraction_of_time"]) == (0.75, 0.75)
    assert told["kinds"]["slow_rank"]["names"] == ["rank 1"]


def test_the_degraded_fraction_is_among_the_metrics_of_a_run(tmp_path: Path) -> None:
    left_degraded(tmp_path)
    text = failsoft(tmp_path, "goodput", "first", "--metrics")
    assert 'failsoft_run_degraded_fraction{run="first",of="batches"} 0.75' in text
    assert 'failsoft_run_degraded_open{run="first",kind="slow_rank"} 1.0' in text
