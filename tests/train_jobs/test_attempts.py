from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from failsoft.artifacts.home import Home
from failsoft.artifacts.store import Artifact, ArtifactStore
from failsoft.errors import NoProgressError, TrainingError
from failsoft.health.backoff import BackoffPolicy
from failsoft.health.clock import ManualClock
from failsoft.health.ledger import Event, Ledger, Side, parse_event, read_ledger
from failsoft.training.survival.supervise import CONTROLLER_FAILED, RestartPolicy
from train_jobs import attempts as attempts_module
from train_jobs.attempts import Attempts

POLICY = RestartPolicy(backoff=BackoffPolicy(jitter_fraction=0.0))


class Desk:
    """A run of 30 batches without Ray: the test says what each attempt leaves behind."""

    def __init__(self, root: Path) -> None:
        self.home, self.clock = Home(root=root), ManualClock()
        self.ledger = Ledger(self.home.ledger, self.clock, side=Side.TRAINING, subject="run")
        self.attempts = Attempts(home=self.home, run="run", clock=self.clock, total_batches=lambda: 30)

    def leave_checkpoint(self, position: int) -> None:
        store = self.home.checkpoints("run", self.clock)
        meta = {"position": position, "step": position - 1, "healthy": True}
        store.publish(f"position-{position:012d}", lambda folder: folder.joinpath("x").touch(), meta=meta)

    def until_done(self, *attempts: int | str | Exception) -> None:
        """Carry out: a number leaves a checkpoint there, a text is an error, an exception was raised at batch 5."""
        script = iter(attempts)

        def run_once() -> str | None:
            step = next(script)
            if isinstance(step, int):
                self.leave_checkpoint(step)
                return None if step >= 30 else "a worker died"
            if isinstance(step, Exception):
                self.ledger.record("worker_failed", str(step), error=repr(step), position=5)
            return str(step)

        self.attempts.until_done(run_once, policy=POLICY, rng=random.Random(1))


def test_attempts_go_on_until_all_batches_are_consumed(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    start_s = desk.clock.monotonic_s()
    desk.until_done(10, "a worker died", 30)
    assert desk.clock.monotonic_s() - start_s == 10.0 + 30.0
    events = [event for event in read_ledger(desk.home.ledger).events if event.kind == "attempt_failed"]
    assert [event.data["progressed"] for event in events] == [True, False]


def test_an_error_of_code_in_what_leads_the_workers_is_a_bug_as_one_of_theirs_is(tmp_path: Path) -> None:
    desk = Desk(tmp_path)

    def run_once() -> str:
        desk.ledger.record(CONTROLLER_FAILED, "KeyError: 'rank'", error="KeyError: 'rank'", position=5)
        return "Training failed due to controller error"

    with pytest.raises(NoProgressError, match="KeyError: 'rank' was raised twice at batch 5: a bug"):
        desk.attempts.until_done(run_once, policy=POLICY, rng=random.Random(1))
    assert len([event for event in read_ledger(desk.home.ledger).events if event.kind == "attempt_failed"]) == 2


def test_a_last_checkpoint_that_was_damaged_is_put_aside_and_trained_again(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.leave_checkpoint(20)
    desk.leave_checkpoint(30)
    (tmp_path / "runs" / "run" / "checkpoints" / "position-000000000030" / "x").write_bytes(b"flipped")
    desk.until_done(30)
    kinds = [event.kind for event in read_ledger(desk.home.ledger).events]
    assert kinds[0] == "checkpoint_quarantined"


def test_progress_that_lies_in_memory_only_counts_when_the_next_workers_begin_with_it(tmp_path: Path) -> None:
    desk, begins = Desk(tmp_path), iter((0, 200, 400, 600, 600, 600, 600, 600))

    def dies() -> str:
        desk.ledger.record("run_started", "with a snapshot", position=next(begins))
        return "a worker was killed"

    with pytest.raises(NoProgressError, match="3 attempts in a row"):
        desk.attempts.until_done(dies, policy=POLICY, rng=random.Random(1))
    events = [event for event in read_ledger(desk.home.ledger).events if event.kind == "attempt_failed"]
    assert [event.data["progressed"] for event in events] == [False, True, True, True, False, False, False]


def test_a_damaged_checkpoint_hides_no_progress(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    for position in (10, 15):
        desk.leave_checkpoint(position)
    (tmp_path / "runs" / "run" / "checkpoints" / "position-000000000015" / "x").write_bytes(b"flipped")
    desk.until_done(12, "a worker died", 30)
    events = [event for event in read_ledger(desk.home.ledger).events if event.kind == "attempt_failed"]
    assert [event.data["progressed"] for event in events] == [True, False]


def test_storage_that_is_away_for_a_moment_costs_a_wait_and_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, reads = Desk(tmp_path), list[str]()
    desk.leave_checkpoint(20)
    real = ArtifactStore.newest

    def away_once(store: ArtifactStore, **options: Any) -> Artifact | None:
        reads.append(store.kind)
        if len(reads) == 3:  # when the first attempt has ended
            raise OSError(116, "Stale file handle")
        return real(store, **options)

    monkeypatch.setattr(ArtifactStore, "newest", away_once)
    start_s = desk.clock.monotonic_s()
    desk.until_done("a worker died", 30)
    assert desk.clock.monotonic_s() - start_s == 10.0
    kinds = [event.kind for event in read_ledger(desk.home.ledger).events]
    began = "attempt_began"
    assert kinds == [began, "checkpoints_unreadable", "attempt_failed", began, "run_finished"]


def test_a_run_whose_workers_died_after_the_last_checkpoint_has_an_end_in_its_story_once(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.until_done(30)
    desk.until_done()
    ends = [event for event in read_ledger(desk.home.ledger).events if event.kind == "run_finished"]
    assert [event.data["step"] for event in ends] == [29]


def test_three_barren_attempts_stop_the_run_and_the_ledger_says_why(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    with pytest.raises(NoProgressError, match="out of memory"):
        desk.until_done("out of memory", "out of memory", "out of memory", 30)
    assert read_ledger(desk.home.ledger).events[-1].kind == "run_stopped"


def test_an_error_that_comes_back_at_the_same_batch_is_a_bug_and_stops_at_once(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    with pytest.raises(NoProgressError, match="raised twice at batch 5"):
        desk.until_done(ValueError("no such label"), ValueError("no such label"), 30)


@pytest.mark.parametrize(("kind", "status"), [("DropRateError", 3), ("NoProgressError", 4), ("Unheard", 1), ("", 1)])
def test_a_diagnosis_keeps_its_kind_and_exit_status_on_its_way_through_the_ledger(
    tmp_path: Path, kind: str, status: int
) -> None:
    desk = Desk(tmp_path)

    def run_once() -> None:
        desk.ledger.record("run_stopped", "look at shard 7", error=kind)

    with pytest.raises(TrainingError, match="look at shard 7") as caught:
        desk.attempts.until_done(run_once, policy=POLICY, rng=random.Random(1))
    assert caught.value.exit_status == status
    assert status == 1 or type(caught.value).__name__ == kind


def test_a_diagnosis_of_the_breaker_is_passed_on_and_not_retried(tmp_path: Path) -> None:
    desk = Desk(tmp_path)

    def run_once() -> None:
        desk.ledger.record("run_stopped", "too many batches are refused")

    with pytest.raises(TrainingError, match="too many batches are refused"):
        desk.attempts.until_done(run_once, policy=POLICY, rng=random.Random(1))


def test_each_line_of_a_long_ledger_is_read_once_however_many_attempts_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(tmp_path)
    others = Ledger(desk.home.ledger, desk.clock, side=Side.TRAINING, subject="another")
    for _ in range(500):
        others.record("step_refused", "long ago")
    read: list[bytes] = []

    def parse(line: bytes) -> Event | None:
        read.append(line)
        return parse_event(line)

    monkeypatch.setattr(attempts_module, "parse_event", parse)
    desk.until_done(*range(3, 31, 3))
    assert 500 < len(read) <= len(read_ledger(desk.home.ledger).events)
