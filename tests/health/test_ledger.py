"""Events survive torn lines, odd data and many writers."""

from __future__ import annotations

import gc
import json
import math
import resource
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from failsoft.health.clock import ManualClock
from failsoft.health.ledger import MAX_EVENT_BYTES, Ledger, Side, each_event, read_ledger
from failsoft.health.ledger_files import append_line


def ledger(folder: Path) -> Ledger:
    return Ledger(folder / "deep" / "ledger.jsonl", ManualClock(), side=Side.SERVING, subject="gateway-1")


def test_what_was_recorded_is_read_back_in_order(tmp_path: Path) -> None:
    book = ledger(tmp_path)
    written = [book.record("trip", "12 bad of 40", epoch=3), book.record("rest", "60 s")]
    reading = read_ledger(book.path)
    assert list(reading.events) == written
    assert (reading.torn_lines, written[0].data) == (0, {"epoch": 3})


def test_an_absent_ledger_is_an_empty_one(tmp_path: Path) -> None:
    assert read_ledger(tmp_path / "none").events == ()


def test_a_ledger_that_cannot_be_written_loses_no_word_and_stops_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "deep").touch()  # a file where the folder should be
    event = ledger(tmp_path).record("trip", "12 bad of 40")
    assert event.kind == "trip"
    assert "12 bad of 40" in caplog.text


@contextmanager
def a_disk_that_takes(size_bytes: int) -> Iterator[None]:
    """Of each file no more than this; what would go beyond is cut, as on a disk that becomes full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_an_event_of_which_the_disk_took_a_part_is_in_the_log_and_the_next_ones_say_that_it_is_missing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    book = ledger(tmp_path)
    book.record("first", "whole")
    with a_disk_that_takes(book.path.stat().st_size + 40):
        book.record("second", "torn by a disk that became full")
        book.record("third", "not even begun")
    assert (book.unrecorded, "torn by a disk" in caplog.text) == (2, True)
    book.record("fourth", "there is room again")
    reading = read_ledger(book.path)
    assert [event.kind for event in reading.events] == ["first", "fourth", "events_missing"]
    assert (reading.torn_lines, reading.events[-1].data["count"]) == (1, 2)
    book.record("fifth", "told once")
    assert read_ledger(book.path).events[-1].kind == "fifth"


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_a_torn_last_line_costs_that_line_only_and_not_the_next_one(tmp_path: Path, cut: int) -> None:
    book = ledger(tmp_path)
    book.record("first", "whole")
    book.record("second", "torn by a kill")
    book.path.write_bytes(book.path.read_bytes()[:-cut])
    book.record("third", "after the restart")
    reading = read_ledger(book.path)
    kept = ["first", "third"] if cut > 1 else ["first", "second", "third"]  # without its newline a line is still whole
    assert [event.kind for event in reading.events] == kept
    assert reading.torn_lines == 3 - len(kept)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(noise=st.binary(max_size=200))
def test_any_bytes_between_events_are_counted_and_passed_over(tmp_path: Path, noise: bytes) -> None:
    book = ledger(tmp_path)
    book.path.unlink(missing_ok=True)
    book.record("first", "before")
    with book.path.open("ab") as raw:
        raw.write(noise)
    book.record("last", "after")
    kinds = [event.kind for event in read_ledger(book.path).events]
    assert (kinds[0], kinds[-1]) == ("first", "last")


@pytest.mark.parametrize(
    "odd", [Path("/x"), {1, 2}, {(1, 2): 3}, object(), "\ud83d", math.nan, b"bytes", {"deep": {("a",): 1}}]
)
def test_what_json_cannot_say_is_written_as_text(tmp_path: Path, odd: object) -> None:
    book = ledger(tmp_path)
    book.record("odd", "\udc00 why", thing=odd)
    (event,) = read_ledger(book.path).events
    assert event.data


def test_data_that_refers_to_itself_does_not_stop_the_platform(tmp_path: Path) -> None:
    book, loop = ledger(tmp_path), {}  # type: ignore[var-annotated]
    loop["self"] = loop
    book.record("odd", "a loop", thing=loop)
    assert len(read_ledger(book.path).events) == 1


def test_an_event_that_is_too_large_says_how_large_it_was(tmp_path: Path) -> None:
    book = ledger(tmp_path)
    book.record("big", "why" * 10_000, blob="x" * MAX_EVENT_BYTES)
    (line,) = book.path.read_bytes().splitlines()
    assert len(line) < MAX_EVENT_BYTES
    assert json.loads(line)["data"]["dropped_bytes"] > MAX_EVENT_BYTES


def test_many_writers_do_not_tear_each_others_lines(tmp_path: Path) -> None:
    books = [ledger(tmp_path) for _ in range(4)]
    threads = [
        threading.Thread(target=lambda book=book: [book.record("tick", "x" * 500) for _ in range(50)]) for book in books
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    reading = read_ledger(books[0].path)
    assert (len(reading.events), reading.torn_lines) == (200, 0)


def test_a_ledger_that_was_removed_is_begun_again(tmp_path: Path) -> None:
    book = ledger(tmp_path)
    book.record("first", "")
    book.path.unlink()
    book.record("second", "")
    assert [event.kind for event in read_ledger(book.path).events] == ["second"]


def test_only_its_owner_reads_the_ledger(tmp_path: Path) -> None:
    book = ledger(tmp_path)
    book.record("first", "")
    assert book.path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("at_s", [1e18, -1e18, 253_402_300_800.0])
def test_a_line_whose_time_no_calendar_has_is_torn_and_breaks_nobody_who_shows_it(tmp_path: Path, at_s: float) -> None:
    book = ledger(tmp_path)
    line = book.record("first", "").to_line()
    book.path.write_bytes(line + line.replace(b'"at_s":', f'"at_s":{at_s!r},"was":'.encode()))
    reading = read_ledger(book.path)
    assert (len(reading.events), reading.torn_lines) == (1, 1)


def test_events_come_one_by_one_so_that_whoever_asks_for_a_few_holds_no_others(tmp_path: Path) -> None:
    book = ledger(tmp_path)
    for number in range(3):
        book.record("trip", "so", number=number)
    append_line(book.path, b'{"torn')
    book.record("trip", "so", number=3)
    events = each_event(book.path)
    first = weakref.ref(next(events))
    assert next(events).count("number") == 1
    gc.collect()
    assert first() is None
    assert [event.count("number") for event in events] == [2, 3]


@given(subject=st.text(min_size=1, max_size=20), other=st.text(min_size=1, max_size=20))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_lines_that_are_passed_over_unparsed_hold_none_of_the_events_that_are_asked_for(
    tmp_path: Path, subject: str, other: str
) -> None:
    path = tmp_path / f"{abs(hash((subject, other)))}.jsonl"
    for side in (Side.TRAINING, Side.SERVING):
        for whom in (subject, other):
            Ledger(path, ManualClock(), side=side, subject=whom).record("trip", "words")
    found = [event for event in each_event(path, Side.TRAINING, subject) if event.subject == subject]
    assert [event for event in found if event.side is Side.TRAINING] == [
        event for event in read_ledger(path).events if event.side is Side.TRAINING and event.subject == subject
    ]
    path.unlink()
