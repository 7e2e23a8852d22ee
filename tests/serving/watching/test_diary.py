"""What happens is written down when the disk allows; whoever answers callers does not wait for that."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from failsoft.health import aside, ledger, ledger_files
from failsoft.health.clock import ManualClock
from failsoft.health.ledger import Ledger, read_ledger
from failsoft.serving.watching.diary import diary


class HungDisk:
    """Storage that does not return until it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.back, self._append = threading.Event(), ledger_files.append_line
        monkeypatch.setattr(ledger, "append_line", self.append)

    def append(self, path: Path, line: bytes) -> int:
        assert self.back.wait(timeout=30.0)
        return self._append(path, line)


@pytest.fixture
def hung(monkeypatch: pytest.MonkeyPatch) -> Iterator[HungDisk]:
    """Back when the test is over, since its thread waits for it."""
    disk = HungDisk(monkeypatch)
    yield disk
    disk.back.set()


def of_gateway(folder: Path, clock: ManualClock | None = None) -> Ledger:
    return diary(folder / "ledger.jsonl", clock or ManualClock(), subject="gateway-1")


def kinds(book: Ledger) -> list[str]:
    return [event.kind for event in read_ledger(book.path).events]


def test_a_disk_that_refuses_is_counted_and_raises_nothing(tmp_path: Path) -> None:
    book = of_gateway(tmp_path)
    book.path.mkdir()
    book.record("second", "21 bad of 100")
    book.settle()
    assert book.unrecorded == 1


def test_a_disk_that_hangs_holds_nobody_up_and_the_order_is_kept(tmp_path: Path, hung: HungDisk) -> None:
    book = of_gateway(tmp_path)
    book.record("first", "a")
    book.record("second", "b")
    assert kinds(book) == []
    hung.back.set()
    book.settle()
    assert kinds(book) == ["first", "second"]


def test_while_a_disk_hangs_only_so_many_events_wait_and_the_others_are_counted_and_told(
    tmp_path: Path, hung: HungDisk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(aside, "MOST_WAITING", 3)
    book = of_gateway(tmp_path)
    for number in range(10):
        book.record(f"number_{number}", "while storage stood still")
    assert book.unrecorded == 7
    assert all(f"number_{number}" in caplog.text for number in range(3, 10))
    hung.back.set()
    book.settle()
    assert kinds(book) == ["number_0", "number_1", "number_2", "events_missing"]


def test_an_event_is_dated_when_it_happened_and_not_when_the_disk_took_it(tmp_path: Path, hung: HungDisk) -> None:
    clock = ManualClock()
    book = of_gateway(tmp_path, clock)
    happened_s = clock.wall_s()
    book.record("gateway_tripped", "21 bad of 100")
    clock.advance(600.0)
    hung.back.set()
    book.settle()
    assert [event.at_s for event in read_ledger(book.path).events] == [happened_s]


def test_where_no_thread_can_be_had_nobody_writes_and_nobody_waits(
    tmp_path: Path, hung: HungDisk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse_to_start(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    book = of_gateway(tmp_path)
    with monkeypatch.context() as without:
        without.setattr(threading.Thread, "start", refuse_to_start)
        book.record("lost", "the machine has no thread left")
    assert (book.unrecorded, "lost" in caplog.text) == (1, True)
    hung.back.set()
    book.record("later", "it has one again")
    book.settle()
    assert kinds(book) == ["later", "events_missing"]
