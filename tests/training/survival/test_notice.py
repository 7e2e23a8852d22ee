from __future__ import annotations

import errno
import math
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from failsoft.errors import ConfigError
from failsoft.health.clock import ManualClock, SystemClock
from failsoft.health.ledger import Ledger, Side, read_ledger
from failsoft.training.survival.notice import (
    EXIT_PREEMPTED,
    Deadline,
    Notice,
    NoticePolicy,
    Word,
    drop_notice,
    drop_resize,
    listen,
    listening,
    passing_on,
    read_notice,
    read_resize,
    withdraw_notice,
    withdraw_resize,
)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_becomes_a_word_and_the_former_handler_comes_back(number: signal.Signals) -> None:
    notice, before = Notice(), signal.getsignal(number)
    with listening(notice):
        os.kill(os.getpid(), number)
        assert notice.heard is not None
        assert notice.heard.why == f"{number.name} to process {os.getpid()}"
    assert signal.getsignal(number) is before


def test_a_second_signal_changes_nothing() -> None:
    notice = Notice()
    with listening(notice):
        os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGTERM)
    assert notice.heard is not None
    assert notice.heard.why.startswith("SIGUSR1")


def test_a_closed_notice_leaves_signals_to_those_who_had_them_before() -> None:
    former: list[int] = []
    kept = signal.signal(signal.SIGUSR1, lambda number, _frame: former.append(number))
    try:
        notice = Notice()
        with listening(notice):
            notice.closed = True
            os.kill(os.getpid(), signal.SIGUSR1)
        assert (former, notice.heard) == ([signal.SIGUSR1], None)
    finally:
        signal.signal(signal.SIGUSR1, kept)


def test_a_process_whose_notice_is_closed_dies_of_sigterm_as_any_other() -> None:
    script = (
        "import os, signal; from failsoft.training.survival.notice import Notice, listen; n = Notice(); listen(n); "
        "n.closed = True; os.kill(os.getpid(), signal.SIGTERM); print('alive')"
    )
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, "")


def test_signals_can_only_be_listened_to_in_the_main_thread() -> None:
    refused: list[str] = []

    def elsewhere() -> None:
        try:
            listen(Notice())
        except ConfigError as error:
            refused.append(str(error))
        with listening(Notice()):
            refused.append("not refused")

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert refused == ["signals can only be listened to in a process's main thread; call listen() there", "not refused"]


def test_a_notice_by_file_is_for_the_whole_run_until_it_is_withdrawn(tmp_path: Path) -> None:
    assert read_notice(tmp_path / "run") is None
    path = drop_notice(tmp_path / "run", "maintenance at 20:00")
    assert read_notice(tmp_path / "run") == Word(why="maintenance at 20:00", whole_run=True)
    assert list(path.parent.iterdir()) == [path]
    path.write_text("{", "utf-8")
    assert read_notice(tmp_path / "run") is None
    withdraw_notice(tmp_path / "run")
    withdraw_notice(tmp_path / "run")
    assert not path.exists()


def test_what_the_driver_hears_its_workers_are_told_by_file(tmp_path: Path) -> None:
    notice, written = Notice(), threading.Event()
    drop_notice(tmp_path, "told to the run before this one")

    def wait() -> None:
        while read_notice(tmp_path) is None:
            written.wait(0.01)
        written.set()

    waiting = threading.Thread(target=wait)
    with passing_on(notice, tmp_path):
        assert read_notice(tmp_path) is None
        notice.give(Word(why="SIGTERM to process 1"))
        waiting.start()
        assert written.wait(30)
    waiting.join()
    assert read_notice(tmp_path) == Word(why="SIGTERM to process 1", whole_run=True)


def test_what_the_driver_hears_while_the_storage_refuses_is_told_as_soon_as_it_takes_it(tmp_path: Path) -> None:
    notice, run, refused = Notice(), tmp_path / "run", threading.Event()

    def refuse(run_folder: Path, why: str) -> Path:
        if not refused.is_set():
            refused.set()
            raise OSError(errno.ENOSPC, "No space left on device")
        return drop_notice(run_folder, why)

    with pytest.MonkeyPatch.context() as full:
        full.setattr("failsoft.training.survival.notice.drop_notice", refuse)
        with passing_on(notice, run):
            notice.give(Word(why="SIGTERM to process 1"))
            assert refused.wait(30)
            until_s = SystemClock().monotonic_s() + 30.0
            while read_notice(run) is None and SystemClock().monotonic_s() < until_s:
                SystemClock().sleep_s(0.01)
    assert read_notice(run) == Word(why="SIGTERM to process 1", whole_run=True)


@pytest.mark.parametrize("grace_s", [0.0, -1.0, math.nan, math.inf])
def test_a_notice_that_leaves_no_time_is_refused(grace_s: float) -> None:
    with pytest.raises(ConfigError, match="grace_s is"):
        NoticePolicy(grace_s=grace_s)


@pytest.mark.parametrize(("own_s", "holds_s"), [(None, 25.0), (120.0, 120.0), (3.0, 3.0)])
def test_a_worker_that_cannot_leave_in_time_says_so_and_goes(
    tmp_path: Path, own_s: float | None, holds_s: float
) -> None:
    clock, notice, ended = ManualClock(), Notice(), list[int]()
    ledger = Ledger(tmp_path / "ledger.jsonl", clock, side=Side.TRAINING, subject="run")
    deadline = Deadline(notice, tmp_path, policy=NoticePolicy(), ledger=ledger, clock=clock, end=ended.append)
    deadline.look()
    notice.give(Word(why="the node drains", grace_s=own_s))
    deadline.look()
    clock.advance(holds_s)
    deadline.look()
    assert ended == []
    clock.advance(0.1)
    deadline.look()
    assert ended == [EXIT_PREEMPTED] == [143]
    events = read_ledger(tmp_path / "ledger.jsonl").events
    assert [event.kind for event in events] == ["notice_heard", "notice_missed"]
    assert "the node drains" in events[0].why


def test_a_notice_in_the_runs_folder_is_found(tmp_path: Path) -> None:
    clock, notice = ManualClock(), Notice()
    ledger = Ledger(tmp_path / "ledger.jsonl", clock, side=Side.TRAINING, subject="run")
    deadline = Deadline(notice, tmp_path, policy=NoticePolicy(), ledger=ledger, clock=clock)
    drop_notice(tmp_path, "preStop")
    deadline.look()
    assert notice.heard == Word(why="preStop", whole_run=True)


def test_a_planned_resize_is_a_word_to_the_workers_and_leaves_them_time_to_save(tmp_path: Path) -> None:
    notice, clock, ends = Notice(), ManualClock(), list[int]()
    ledger = Ledger(tmp_path / "ledger.jsonl", clock, side=Side.TRAINING, subject="run")
    deadline = Deadline(notice, tmp_path, policy=NoticePolicy(), ledger=ledger, clock=clock, end=ends.append)
    drop_resize(tmp_path, "planned resize from 1 to 2 workers")
    deadline.look()
    clock.advance(120.0)
    deadline.look()
    assert notice.heard is not None
    assert (notice.heard.why, notice.heard.whole_run) == ("planned resize from 1 to 2 workers", False)
    assert (read_notice(tmp_path), ends) == (None, [])
    withdraw_resize(tmp_path)
    assert read_resize(tmp_path) is None


def test_a_run_that_is_told_to_leave_leaves_whatever_else_it_was_asked(tmp_path: Path) -> None:
    notice, clock = Notice(), ManualClock()
    ledger = Ledger(tmp_path / "ledger.jsonl", clock, side=Side.TRAINING, subject="run")
    drop_resize(tmp_path, "planned resize from 1 to 2 workers")
    drop_notice(tmp_path, "preStop")
    Deadline(notice, tmp_path, policy=NoticePolicy(), ledger=ledger, clock=clock).look()
    assert notice.heard == Word(why="preStop", whole_run=True)


def test_nothing_to_withdraw_is_no_trouble_on_storage_that_became_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, *_args: object, **_options: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(self))  # Linux: also of what is not there

    monkeypatch.setattr(Path, "unlink", refuse)
    withdraw_notice(tmp_path)
    withdraw_resize(tmp_path)
    drop_resize(tmp_path, "planned")
    with pytest.raises(OSError, match="Read-only"):
        withdraw_resize(tmp_path)
