"""Whoever gives the alarm, all ranks' stacks are in the ledger before the first of them ends."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from failsoft.health.clock import ManualClock
from failsoft.health.ledger import Event, Ledger, Side, read_ledger
from failsoft.training.ranks import SoloRank
from failsoft.training.survival.muster import Muster, muster_of
from failsoft.training.survival.process_mark import ProcessMark, mark_of
from failsoft.training.survival.suspicion import Standing, Statement
from failsoft.training.survival.watch_policy import EXIT_HUNG, WatchPolicy
from failsoft.training.survival.watchdog import Watchdog, WatchPost
from tests.conftest import ROOT
from tests.training.diary_loop import ThreadRanks

NOBODY = ProcessMark(process=0)
POLICY = WatchPolicy(tick_s=1.0, muster_s=8.0)


def muster(folder: Path, rank: int, clock: ManualClock, world: int = 2) -> Muster:
    return Muster(folder=folder / "hangs" / "group-1", rank=rank, processes=(NOBODY,) * world, clock=clock)


def said(rank: int) -> Statement:
    return Statement(rank=rank, phase="step", position=7, standing=Standing.ELSEWHERE, where="")


def test_only_the_first_call_is_the_first_and_all_hear_it(tmp_path: Path) -> None:
    ranks = [muster(tmp_path, rank, ManualClock()) for rank in range(3)]
    assert not any(rank.called() for rank in ranks)
    assert [rank.call() for rank in ranks] == [True, False, False]
    assert all(rank.called() for rank in ranks)


def test_a_rank_without_a_word_is_waited_for_no_longer_than_the_patience(tmp_path: Path) -> None:
    clock = ManualClock()
    caller = muster(tmp_path, 0, clock)
    caller.call()
    caller.say(said(0))
    began_s = clock.monotonic_s()
    assert caller.heard(8.0) == {0: said(0)}
    assert clock.monotonic_s() - began_s == pytest.approx(8.0, abs=0.2)


def test_nobody_is_waited_for_once_all_have_spoken(tmp_path: Path) -> None:
    clock = ManualClock()
    caller, other = muster(tmp_path, 0, clock), muster(tmp_path, 1, clock)
    caller.call()
    caller.say(said(0))
    other.say(said(1))
    began_s = clock.monotonic_s()
    assert caller.heard(8.0) == {0: said(0), 1: said(1)}
    assert clock.monotonic_s() == began_s


def test_a_torn_word_is_none(tmp_path: Path) -> None:
    caller = muster(tmp_path, 0, ManualClock())
    caller.call()
    (caller.folder / "rank-1.json").write_text(said(1).to_json()[:20], "utf-8")
    assert caller.statements() == {}


def test_a_group_agrees_on_a_name_of_its_own_and_the_calls_of_groups_before_it_are_not_heard(tmp_path: Path) -> None:
    old = tmp_path / "group-1"
    old.mkdir()
    table, meeting = [None, None], threading.Barrier(2, timeout=60)
    found: dict[int, Muster | None] = {}

    def join(rank: int) -> None:
        found[rank] = muster_of(ThreadRanks(rank, 2, table, meeting), tmp_path, ManualClock(), nudgeable=rank == 0)

    threads = [threading.Thread(target=join, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first, second = found[0], found[1]
    assert first is not None
    assert second is not None
    assert first.folder == second.folder != old
    assert not first.called()
    assert not old.exists()
    assert first.processes == second.processes == (mark_of(os.getpid()), NOBODY)


def test_a_rank_that_is_alone_musters_nobody(tmp_path: Path) -> None:
    assert muster_of(SoloRank(), tmp_path, ManualClock(), nudgeable=True) is None


def test_a_signal_meets_the_very_process_or_nobody() -> None:
    command = [sys.executable, "-c", "print(flush=True); import time; time.sleep(600)"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        right = mark_of(process.pid)
        for wrong in (
            NOBODY,
            ProcessMark(process=process.pid, born="1", place=right.place),
            ProcessMark(process=process.pid, born=right.born, place="another machine"),
            ProcessMark(process=process.pid),
        ):
            assert not wrong.nudge()
        assert process.poll() is None
        assert right.nudge()
        assert process.wait(timeout=60) == -12
    assert not right.nudge()


class Group:
    """Watchdogs of the ranks of one group, in one process and on one clock."""

    def __init__(self, folder: Path, world: int) -> None:
        self.clock = ManualClock()
        self.ledger = Ledger(folder / "ledger.jsonl", self.clock, side=Side.TRAINING, subject="run")
        self.ended: list[int] = []
        self.dogs = [self._dog(folder, rank, world) for rank in range(world)]

    def _dog(self, folder: Path, rank: int, world: int) -> Watchdog:
        post = WatchPost(folder=folder, ledger=self.ledger, clock=self.clock, rank=rank)
        dog = Watchdog(post, POLICY, end=lambda _status: self.ended.append(rank))
        dog.joins(muster(folder, rank, self.clock, world))
        dog.path.parent.mkdir(exist_ok=True)
        dog.path.touch()
        return dog

    def told(self, kind: str) -> list[Event]:
        return [event for event in read_ledger(self.ledger.path).events if event.kind == kind]


def test_a_rank_that_hears_the_call_leaves_its_stacks_once_and_does_not_end_by_itself(tmp_path: Path) -> None:
    group = Group(tmp_path, 2)
    muster(tmp_path, 0, group.clock).call()
    group.dogs[1].begins(7)
    for _ in range(3):
        group.clock.advance(1.0)
        group.dogs[1].look()
    (witness,) = group.told("hang_witness")
    assert (witness.data["rank"], witness.data["position"], group.ended) == (1, 7, [])


def test_the_first_to_call_reports_and_a_rank_that_is_late_itself_waits_for_the_report(tmp_path: Path) -> None:
    group = Group(tmp_path, 2)
    for _ in range(1802):  # start-up
        group.clock.advance(1.0)
        group.dogs[1].look()
    assert group.ended == [1]  # nobody else looked
    (report,) = group.told("hang_report")
    assert (report.data["suspects"], report.data["silent"]) == ([0], [0])
    began_s = group.clock.monotonic_s()
    for _ in range(1802):
        group.dogs[0].look()
        group.clock.advance(1.0)
    assert group.ended == [1, 0]
    assert group.clock.monotonic_s() - began_s == 1802.0  # it was told already
    assert len(group.told("hang_report")) == 1
    assert [event.data["rank"] for event in group.told("hang")] == [1, 0]


class Full(Muster):
    """Its folder lies on a disk that takes nothing new."""

    def call(self) -> bool:
        raise OSError(errno.ENOSPC, "No space left on device")


class FullOnceCalled(Muster):
    """The same, from the call on."""

    def say(self, statement: Statement) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def told(self) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("kind", [Full, FullOnceCalled])
def test_on_a_full_disk_a_worker_that_hangs_ends_all_the_same_and_the_log_has_its_stacks(
    tmp_path: Path, kind: type[Muster], caplog: pytest.LogCaptureFixture
) -> None:
    group = Group(tmp_path, 2)
    (tmp_path / "ledger.jsonl").mkdir()  # refuses, even for root
    group.dogs[1].joins(kind(folder=tmp_path / "hangs" / "group-1", rank=1, processes=(NOBODY,) * 2, clock=group.clock))
    for _ in range(1802):
        if not group.ended:
            group.clock.advance(1.0)
            group.dogs[1].look()
    assert group.ended == [1]
    assert "start-up at batch 0 takes longer than its 1800 s" in caplog.text
    assert "stacks" in caplog.text
    assert "hang_report" not in caplog.text  # it would say that this rank itself is silent


def test_a_witness_that_can_leave_no_word_goes_on_watching(tmp_path: Path) -> None:
    group = Group(tmp_path, 2)
    full = FullOnceCalled(folder=tmp_path / "hangs" / "group-1", rank=1, processes=(NOBODY,) * 2, clock=group.clock)
    group.dogs[1].joins(full)
    full.call()
    group.dogs[1].look()
    group.dogs[1].look()
    assert [event.data["rank"] for event in group.told("hang_witness")] == [1]


@pytest.mark.parametrize("way", ["stands", "backward", "watchdog is dead", "holds the interpreter"])
def test_the_stacks_of_the_culprit_are_in_the_ledger_although_its_victim_gave_the_alarm(
    tmp_path: Path, way: str
) -> None:
    command = [sys.executable, "-m", "tests.training.survival.hang_rank"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen([*command, str(rank), str(tmp_path), way], cwd=ROOT, env=environment) for rank in range(2)
    ]
    try:
        assert ranks[0].wait(timeout=120) == EXIT_HUNG
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    events = read_ledger(tmp_path / "ledger.jsonl").events
    (alarm,) = (event for event in events if event.kind == "hang")
    (witness,) = (event for event in events if event.kind == "hang_witness")
    (report,) = (event for event in events if event.kind == "hang_report")
    assert (alarm.data["rank"], witness.data["rank"], report.data["suspects"]) == (0, 1, [1])
    assert "stand_still" in str(witness.data["stacks"])
    assert report.data["silent"] == ([] if way in {"stands", "backward"} else [1])
    assert (
        f"rank 0: first step at batch 7, {'in a backward pass' if way == 'backward' else 'in a collective'}"
        in report.why
    )
