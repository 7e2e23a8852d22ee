"""Errands beside the work: done in order; waited for while storage is quick, and not while it is slow."""

from __future__ import annotations

import logging
import pickle
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest

from failsoft.health import aside as module
from failsoft.health.aside import SLOW_S, Aside
from failsoft.health.clock import ManualClock
from failsoft.health.ledger import Ledger, Side, read_ledger


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without end: a busy machine may keep a thread from its turn."""
    monkeypatch.setattr(module, "PATIENCE_S", 1e6)


def wait_and_note(back: threading.Event, done: list[int], number: int) -> None:
    assert back.wait(timeout=60.0)
    done.append(number)


def test_on_quick_storage_an_errand_is_done_when_the_call_returns() -> None:
    aside, done = Aside(ManualClock()), list[int]()
    for number in range(50):
        aside.do(partial(done.append, number))
        assert done[-1] == number


def test_storage_that_hangs_holds_the_work_up_once_and_the_order_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 0.01)
    aside, back, done = Aside(ManualClock()), threading.Event(), list[int]()
    aside.do(partial(wait_and_note, back, done, 0))
    monkeypatch.setattr(module, "PATIENCE_S", 1e6)  # whoever waits now waits for ever
    for number in range(1, 20):
        aside.do(partial(done.append, number))
    assert done == []
    back.set()
    aside.settle()
    assert done == list(range(20))


def hanging(aside: Aside, monkeypatch: pytest.MonkeyPatch, done: list[int]) -> threading.Event:
    """Storage that does not answer until the event is set."""
    back = threading.Event()
    with monkeypatch.context() as short:
        short.setattr(module, "PATIENCE_S", 0.01)
        aside.do(partial(wait_and_note, back, done, 0))
    return back


def test_while_storage_hangs_only_so_many_errands_wait_and_the_others_are_turned_away_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 10)
    aside, done = Aside(ManualClock()), list[int]()
    back = hanging(aside, monkeypatch, done)
    taken = [aside.do(partial(done.append, number)) for number in range(1, 25)]
    assert (taken, aside.waiting, aside.turned_away) == ([True] * 9 + [False] * 15, 10, 15)
    back.set()
    aside.settle()
    assert aside.do(partial(done.append, 25))
    aside.settle()
    assert done == [*range(10), 25]


def test_many_threads_that_give_errands_at_once_lose_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 0.0)
    aside, done = Aside(ManualClock()), list[int]()
    givers = [
        threading.Thread(target=lambda first=first: [aside.do(partial(done.append, first + n)) for n in range(100)])
        for first in range(0, 800, 100)
    ]
    for giver in givers:
        giver.start()
    for giver in givers:
        giver.join()
    aside.settle()
    assert sorted(done) == list(range(800))


def test_events_that_found_no_room_are_in_the_log_and_the_ledger_says_how_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 3)
    ledger = Ledger(
        tmp_path / "ledger.jsonl", ManualClock(), side=Side.TRAINING, subject="run", aside=Aside(ManualClock())
    )
    assert ledger._aside is not None
    back = hanging(ledger._aside, monkeypatch, [])
    for number in range(6):
        ledger.record(f"number_{number}", "while storage stood still")
    assert ledger.unrecorded == 4
    assert "number_1" not in caplog.text
    assert all(f"number_{number}" in caplog.text for number in range(2, 6))
    back.set()
    ledger.settle()
    ledger.record("later", "it answers again")
    ledger.settle()
    told = {event.kind: event.data for event in read_ledger(ledger.path).events}
    assert list(told) == ["number_0", "number_1", "events_missing", "later"]
    assert told["events_missing"]["count"] == 4


def test_storage_that_was_slow_is_not_waited_for_until_it_was_quick_again() -> None:
    clock, back, done = ManualClock(), threading.Event(), list[int]()
    aside = Aside(clock)
    aside.do(lambda: clock.advance(2 * SLOW_S))
    aside.do(partial(wait_and_note, back, done, 1))
    assert done == []
    back.set()
    aside.settle()
    aside.do(lambda: done.append(2))
    assert done == [1, 2]


def test_what_an_errand_raises_is_logged_and_the_next_one_is_done(caplog: pytest.LogCaptureFixture) -> None:
    aside, done = Aside(ManualClock()), list[int]()
    with caplog.at_level(logging.ERROR):
        aside.do(lambda: done.append(1 // 0))
        aside.do(lambda: done.append(1))
    assert done == [1]
    assert "ZeroDivisionError" in caplog.text


def test_a_copy_in_another_process_has_a_thread_of_its_own(tmp_path: Path) -> None:
    ledger = Ledger(
        tmp_path / "ledger.jsonl", ManualClock(), side=Side.TRAINING, subject="run", aside=Aside(ManualClock())
    )
    ledger.record("first", "here")
    pickle.loads(pickle.dumps(ledger)).record("second", "there")  # noqa: S301 -- it is our own
    assert [event.kind for event in read_ledger(ledger.path).events] == ["first", "second"]


def test_an_impatient_ledger_counts_what_the_disk_refuses(tmp_path: Path) -> None:
    ledger = Ledger(
        tmp_path / "ledger.jsonl", ManualClock(), side=Side.TRAINING, subject="run", aside=Aside(ManualClock())
    )
    ledger.path.mkdir()
    ledger.record("first", "here")
    assert ledger.unrecorded == 1


def test_whoever_needs_it_on_the_disk_can_wait_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 0.0)
    ledger = Ledger(
        tmp_path / "ledger.jsonl", ManualClock(), side=Side.TRAINING, subject="run", aside=Aside(ManualClock())
    )
    for number in range(20):
        ledger.record(f"number_{number}", "in order")
    ledger.settle()
    assert [event.kind for event in read_ledger(ledger.path).events] == [f"number_{number}" for number in range(20)]


def test_an_event_says_what_it_was_told_though_its_data_change_before_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 0.0)
    ledger = Ledger(
        tmp_path / "ledger.jsonl", ManualClock(), side=Side.TRAINING, subject="run", aside=Aside(ManualClock())
    )
    back, found = threading.Event(), {"loss": 1.0}
    assert ledger._aside is not None
    ledger._aside.do(partial(wait_and_note, back, [], 0))
    ledger.record("validated", "on schedule", metrics=found)
    found["loss"] = 2.0
    back.set()
    ledger.settle()
    assert [event.data for event in read_ledger(ledger.path).events] == [{"metrics": {"loss": 1.0}}]


def refuse_to_start(_thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_where_no_thread_can_be_had_each_errand_is_done_once_by_who_gives_it(monkeypatch: pytest.MonkeyPatch) -> None:
    aside, done = Aside(ManualClock()), list[int]()
    with monkeypatch.context() as without:
        without.setattr(threading.Thread, "start", refuse_to_start)
        aside.do(partial(done.append, 1))
        assert done == [1]
    aside.do(partial(done.append, 2))
    aside.settle()
    assert done == [1, 2]


LAST_WORDS = """
import atexit, sys
from pathlib import Path
from failsoft.health.aside import Aside
from failsoft.health.clock import SystemClock
from failsoft.health.ledger import Ledger, Side
clock = SystemClock()
ledger = Ledger(Path(sys.argv[1]), clock, side=Side.TRAINING, subject="run", aside=Aside(clock))
atexit.register(ledger.record, "second", "while the process ends")
ledger.record("first", "before")
"""


def test_what_is_said_while_the_process_ends_is_written_too(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    ended = subprocess.run([sys.executable, "-c", LAST_WORDS, str(path)], capture_output=True, text=True, check=True)
    assert ended.stderr == ""
    assert [event.kind for event in read_ledger(path).events] == ["first", "second"]
