"""A tracker that raises, hangs or is away costs a run nothing, and what it missed is counted."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from failsoft.errors import ConfigError
from failsoft.health.backoff import BackoffPolicy
from failsoft.training.trackers.line import TrackerLine
from failsoft.training.trackers.tracker import Address, Ending, Kind, Tracker
from tests.training.trackers.fakes import Hangs, Raises, Remembers, facts

AT_ONCE = BackoffPolicy(first_s=0.0, factor=1.0, cap_s=0.0)
LONG = 60.0


def line_to(open_it: Callable[[], Tracker], folder: Path, told: list[str], most_waiting: int = 1000) -> TrackerLine:
    line = TrackerLine("board", open_it, facts(folder), told=told.append, most_waiting=most_waiting, patience=AT_ONCE)
    line.start()
    return line


def test_all_that_was_told_arrives_in_its_order_before_the_end(tmp_path: Path) -> None:
    tracker, told = Remembers(), list[str]()
    line = line_to(lambda: tracker, tmp_path, told)
    for step in range(50):
        line.numbers(step, {"loss": float(step)})
    line.happened(50, "rolled_back", "why")
    assert line.close(Ending.FINISHED, within_s=LONG)
    assert tracker.told == [(step, {"loss": float(step)}) for step in range(50)]
    assert (tracker.events, tracker.endings) == ([(50, "rolled_back", "why")], [Ending.FINISHED])
    assert (len(tracker.begun), line.dropped, line.failures, told) == (1, 0, 0, [])


def test_a_tracker_that_hangs_holds_nobody_up_and_loses_the_oldest(tmp_path: Path) -> None:
    tracker, told = Hangs(), list[str]()
    line = line_to(lambda: tracker, tmp_path, told, most_waiting=10)
    line.numbers(0, {"loss": 0.0})
    assert tracker.entered.wait(LONG)
    for step in range(1, 101):
        line.numbers(step, {"loss": float(step)})
    assert line.dropped == 90
    assert not line.close(Ending.FINISHED, within_s=0.01), "it is left behind"
    assert line.dropped == 100
    tracker.let_go.set()
    assert line.close(Ending.FINISHED, within_s=LONG)


def test_one_that_raises_is_begun_anew_counted_and_said_once(tmp_path: Path) -> None:
    tracker, told = Raises(times=3), list[str]()
    line = line_to(lambda: tracker, tmp_path, told)
    for step in range(10):
        line.numbers(step, {"loss": float(step)})
    assert tracker.works.wait(LONG)
    assert line.close(Ending.FINISHED, within_s=LONG)
    assert (line.failures, line.dropped, told) == (3, 3, ["ConnectionError: the tracking server is away"])
    assert ([step for step, _ in tracker.told], len(tracker.begun)) == ([3, 4, 5, 6, 7, 8, 9], 4)
    assert tracker.endings == [Ending.FINISHED]


def test_one_that_can_not_be_opened_costs_its_messages_and_nothing_else(tmp_path: Path) -> None:
    def away() -> Tracker:
        raise OSError("no route to host")

    told = list[str]()
    line = line_to(away, tmp_path, told)
    line.numbers(1, {"loss": 1.0})
    line.happened(1, "rolled_back", "why")
    assert line.close(Ending.FINISHED, within_s=LONG)
    assert (line.dropped, told) == (2, ["OSError: no route to host"])


def test_a_password_in_an_address_that_a_library_repeats_is_not_passed_on(tmp_path: Path) -> None:
    def away() -> Tracker:
        raise OSError(f"no answer from http://me:hunter2@host:5000/api?x=1&auth_token=abcd {'x' * 300}")

    told = list[str]()
    line = line_to(away, tmp_path, told)
    line.numbers(1, {"loss": 1.0})
    assert line.close(Ending.FINISHED, within_s=LONG)
    assert told[0].startswith("OSError: no answer from http://host:5000/api?x=1&auth_token=… xx")


def test_a_line_is_a_daemon_and_a_queue_holds_something(tmp_path: Path) -> None:
    line = line_to(Remembers, tmp_path, [])
    (thread,) = [one for one in threading.enumerate() if one.name == "failsoft-tracker-board"]
    assert thread.daemon
    assert line.close(Ending.AWAY, within_s=LONG)
    with pytest.raises(ConfigError, match="let at least 1 call wait"):
        TrackerLine("board", Remembers, facts(tmp_path), told=print, most_waiting=0)


def test_an_address_says_which_tracker_and_where() -> None:
    assert Address.parse("mlflow:http://127.0.0.1:5000") == Address(kind=Kind.MLFLOW, place="http://127.0.0.1:5000")
    assert str(Address.parse("tensorboard:/mnt/boards")) == "tensorboard:/mnt/boards"
    for wrong in ("", "boards", "tensorboard", "tensorboard:", "comet:x"):
        with pytest.raises(ConfigError, match="names no tracker; use tensorboard:/mnt/boards"):
            Address.parse(wrong)


def test_a_library_that_is_absent_is_named_with_the_command_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match=r"needs wandb; run: pip install 'failsoft\[wandb\]'"):
        Address.parse("wandb:mine").refuse_unless_installed()
