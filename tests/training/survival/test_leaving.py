"""A loop that is told to leave, in one process."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from failsoft.errors import PreemptedError
from failsoft.health.faults import FaultKind, FaultPlan, burst
from failsoft.health.ledger import Event, read_ledger
from failsoft.training.loop import TrainLoop
from failsoft.training.survival.watch_policy import WatchPhase
from failsoft.training.survival.watchdog import NoWatch
from tests.training.killed_runs import began, left_in, run_of, undisturbed
from tests.training.test_loop import Death
from tests.training.toys import same, toy_loop, weights_of


def told(folder: Path, kind: str) -> list[Event]:
    return [event for event in read_ledger(folder / "ledger.jsonl").events if event.kind == kind]


def leave_at(loop: TrainLoop, position: int) -> TrainLoop:
    loop.told = lambda: "SIGTERM to process 7" if loop.state.position == position else None
    return loop


@pytest.mark.parametrize("position", range(25))
def test_leaving_before_any_batch_changes_no_bit_of_the_result(tmp_path: Path, position: int) -> None:
    nan = FaultPlan(faults=burst(FaultKind.NAN_BATCH, first=9, count=2))
    whole = toy_loop(tmp_path / "whole", faults=nan)
    whole.run()
    first = leave_at(toy_loop(tmp_path / "left", faults=nan), position)
    if position < 24:
        with pytest.raises(PreemptedError, match=f"SIGTERM to process 7; .* goes on from batch {position}"):
            first.run()
        (left,) = told(tmp_path / "left", "preempted")
        assert (left.data["position"], left.data["saved"]) == (position, True)
        again = toy_loop(tmp_path / "left", faults=nan)
        again.run()
        assert told(tmp_path / "left", "run_started")[1].data["position"] == position
        assert told(tmp_path / "left", "run_started")[1].data["repeated_batches"] == 0
    else:  # told with the last batch: finished is better than left
        again = first
        again.run()
    assert same(weights_of(again.state.model), weights_of(whole.state.model))


def test_a_run_that_is_told_again_and_again_before_its_first_batch_loses_nothing(tmp_path: Path) -> None:
    for _ in range(3):
        with pytest.raises(PreemptedError):
            leave_at(toy_loop(tmp_path), 0).run()
    loop = toy_loop(tmp_path)
    loop.run()
    assert loop.state.position == 24


def kill_before_it_is_saved(loop: TrainLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one who told it to leave does not wait for its disk."""

    def killed(*_: object) -> bool:
        raise Death

    with monkeypatch.context() as for_once:
        for_once.setattr(loop.checkpoints, "publish", killed)
        with pytest.raises(Death):
            loop.run()


@pytest.mark.parametrize("position", [1, 6, 9, 10, 11, 13, 23])
def test_workers_that_are_killed_while_they_save_left_the_very_step_in_memory_of_the_host(
    tmp_path: Path, position: int, host_memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nan = FaultPlan(faults=burst(FaultKind.NAN_BATCH, first=9, count=2))
    whole = undisturbed(tmp_path / "whole", faults=nan)
    kill_before_it_is_saved(leave_at(run_of(tmp_path / "left", faults=nan), position), monkeypatch)
    again = undisturbed(tmp_path / "left", faults=nan)
    assert began(tmp_path / "left") == [(0, 0), (position, 0)]
    assert same(weights_of(again.state.model), weights_of(whole.state.model))
    assert again.breaker.state_dict() == whole.breaker.state_dict()
    assert left_in(host_memory) == set()


@pytest.mark.parametrize("position", [2, 6])
def test_where_memory_is_too_short_for_the_copy_it_is_saved_on_disk_all_the_same(tmp_path: Path, position: int) -> None:
    loop = toy_loop(tmp_path)

    def told_with_little_left() -> str | None:
        if loop.state.position != position:
            return None
        loop._snapshots._available_bytes = lambda: 0
        return "SIGTERM to process 7"

    loop.told = told_with_little_left
    with pytest.raises(PreemptedError, match=f"goes on from batch {position}"):
        loop.run()
    (withheld,) = told(tmp_path, "snapshot_withheld")
    assert "0 bytes" in withheld.why
    assert told(tmp_path, "preempted")[0].data["saved"] is True


class Diary(NoWatch):
    """What the loop tells of its progress."""

    def __init__(self) -> None:
        self.told: list[int | WatchPhase] = []

    def begins(self, position: int) -> None:
        self.told.append(position)

    def during(self, phase: WatchPhase) -> AbstractContextManager[None]:
        self.told.append(phase)
        return super().during(phase)


def test_the_watchdog_is_told_of_each_batch_and_of_each_checkpoint(tmp_path: Path) -> None:
    loop, diary = toy_loop(tmp_path), Diary()
    loop.watch = diary
    loop.run()
    assert [entry for entry in diary.told if isinstance(entry, int)] == list(range(24))
    assert diary.told.count(WatchPhase.CHECKPOINT) >= 3
