"""A ledger goes on in the next file when one is full, and whoever reads or follows it misses nothing."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from failsoft.health import ledger as ledger_module
from failsoft.health.clock import ManualClock, SystemClock
from failsoft.health.ledger import Ledger, Side, parse_event, read_ledger
from failsoft.health.ledger_files import Position, Tail, all_lines, archives, last_bytes, put_away

SMALL_BYTES = 2000


def make_small(replace: Callable[[object, str, object], None], full_bytes: int = SMALL_BYTES) -> None:
    replace(ledger_module, "FULL_BYTES", full_bytes)
    replace(ledger_module, "put_away", lambda path: put_away(path, full_bytes=full_bytes))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is full after some fifteen events."""
    make_small(monkeypatch.setattr)


def book(folder: Path) -> Ledger:
    return Ledger(folder / "ledger.jsonl", ManualClock(), side=Side.SERVING, subject="gateway-1")


def numbers(lines: list[bytes]) -> list[int]:
    return [event.data["number"] for event in map(parse_event, lines) if event is not None]


@pytest.mark.usefixtures("small")
def test_a_full_file_is_put_away_and_still_read_in_order(tmp_path: Path) -> None:
    ledger = book(tmp_path)
    for number in range(100):
        ledger.record("trip", "so", number=number)
    assert [event.data["number"] for event in read_ledger(ledger.path).events] == list(range(100))
    assert len(archives(ledger.path)) > 3
    assert all(there.stat().st_size < SMALL_BYTES + 300 for there in [*archives(ledger.path), ledger.path])
    assert {there.stat().st_mode & 0o777 for there in tmp_path.iterdir()} == {0o600}


@pytest.mark.usefixtures("small")
def test_who_follows_sees_each_event_once_across_files_however_seldom_he_looks(tmp_path: Path) -> None:
    ledger = book(tmp_path)
    tail = Tail(ledger.path)
    seen: list[int] = []
    for number in range(100):
        ledger.record("trip", "so", number=number)
        if number % 37 == 0:
            seen += numbers(tail.new_lines())
    assert [*seen, *numbers(tail.new_lines())] == list(range(100))
    assert tail.new_lines() == []
    tail.close()


def test_a_line_that_is_being_written_comes_when_it_is_whole(tmp_path: Path) -> None:
    ledger = book(tmp_path)
    line = ledger.record("trip", "so", number=7).to_line()
    ledger.path.write_bytes(line[:20])
    tail = Tail(ledger.path)
    assert tail.new_lines() == []
    with ledger.path.open("ab") as file:
        file.write(line[20:])
    assert numbers(tail.new_lines()) == [7]
    tail.close()


def test_a_ledger_that_cannot_be_put_away_goes_on_and_is_warned_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_path: Path) -> None:
        raise PermissionError(13, "no")

    monkeypatch.setattr(ledger_module, "FULL_BYTES", 200)
    monkeypatch.setattr(ledger_module, "put_away", refuse)
    ledger = book(tmp_path)
    for number in range(3):
        ledger.record("trip", "so", number=number)
    assert len(read_ledger(ledger.path).events) == 3
    assert (ledger.unrecorded, caplog.text.count("can't be put away")) == (0, 1)


def test_a_ledger_that_could_not_be_put_away_once_is_tried_again_when_it_has_grown_by_as_much_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries, whole = list[Path](), put_away

    def refuse_once(path: Path) -> Path | None:
        tries.append(path)
        if len(tries) == 1:
            raise OSError(28, "no space left")
        return whole(path, full_bytes=1)

    monkeypatch.setattr(ledger_module, "FULL_BYTES", 400)
    monkeypatch.setattr(ledger_module, "put_away", refuse_once)
    ledger = book(tmp_path)
    for number in range(12):
        ledger.record("trip", "so", number=number)
    assert len(tries) > 1
    assert archives(ledger.path)
    assert len(read_ledger(ledger.path).events) == 12


def test_the_thousandth_file_comes_after_the_second(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    for number in (1_000_001, 2, 999_999):
        (tmp_path / f"ledger-{number:06}.jsonl").write_text(f"{number}\n")
    (tmp_path / "ledger-old.jsonl").write_text("mine\n")
    path.write_text("now\n")
    assert list(all_lines(path)) == [b"2\n", b"999999\n", b"1000001\n", b"now\n"]
    assert put_away(path, full_bytes=1) == tmp_path / "ledger-1000002.jsonl"


def _write(path: Path, writer: int) -> None:
    make_small(setattr, 10 * SMALL_BYTES)
    ledger = Ledger(path, SystemClock(), side=Side.SERVING, subject=f"writer-{writer}")
    for number in range(200):
        ledger.record("trip", "so", number=number)


def test_many_processes_put_files_away_at_once_and_no_event_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    tail, seen = Tail(path), list[bytes]()
    context = multiprocessing.get_context("forkserver")
    writers = [context.Process(target=_write, args=(path, writer)) for writer in range(3)]
    for process in writers:
        process.start()
    while any(process.is_alive() for process in writers):
        seen += tail.new_lines()
        read_ledger(path)  # readers come in between
    for process in writers:
        process.join()
    seen += tail.new_lines()
    tail.close()
    assert len(read_ledger(path).events) == 600
    assert len(numbers(seen)) == 600
    for writer in range(3):
        own = [event for event in read_ledger(path).events if event.subject == f"writer-{writer}"]
        assert sorted(event.data["number"] for event in own) == list(range(200))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("looked_at", [1, 14, 15, 16, 40, 99])
def test_who_comes_back_goes_on_where_he_was_however_many_files_later(tmp_path: Path, looked_at: int) -> None:
    ledger = book(tmp_path)
    for number in range(looked_at):
        ledger.record("trip", "so", number=number)
    before = Tail(ledger.path)
    before.skip()
    before.close()
    for number in range(looked_at, 100):
        ledger.record("trip", "so", number=number)
    again = Tail(ledger.path, after=before.position)
    assert numbers(again.new_lines()) == list(range(looked_at, 100))
    again.close()


def test_a_file_is_put_away_behind_what_is_being_written_into_it(tmp_path: Path) -> None:
    """Else a line comes behind whoever has read the file to its end, and gone on to the next one."""
    ledger = book(tmp_path)
    ledger.record("trip", "so", number=0)
    away = threading.Thread(target=put_away, args=(ledger.path,), kwargs={"full_bytes": 1})
    with ledger.path.open("rb") as written:
        fcntl.flock(written, fcntl.LOCK_SH)
        away.start()
        away.join(0.2)
        assert ledger.path.exists()
    away.join(60.0)
    assert (away.is_alive(), len(archives(ledger.path)), ledger.path.exists()) == (False, 1, False)


def test_who_comes_back_to_a_ledger_that_was_removed_sees_the_new_one(tmp_path: Path) -> None:
    ledger = book(tmp_path)
    for number in range(50):
        ledger.record("trip", "so", number=number)
    before = Tail(ledger.path)
    before.skip()
    before.close()
    ledger.path.unlink()
    ledger.record("trip", "so", number=50)
    again = Tail(ledger.path, after=before.position)
    assert numbers(again.new_lines()) == [50]
    again.close()


def test_a_file_that_is_removed_while_somebody_reads_ends_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    for number in (1, 2):
        (tmp_path / f"ledger-{number:06}.jsonl").write_text(f"{number}\n")
    path.write_text("now\n")
    lines = all_lines(path)
    assert next(lines) == b"1\n"
    (tmp_path / "ledger-000002.jsonl").unlink()
    assert list(lines) == [b"now\n"]


@pytest.mark.parametrize(
    ("at_most", "place"),
    [
        (3, Position(file=9, bytes=1)),
        (4, Position(file=8, bytes=10)),
        (9, Position(file=8, bytes=5)),
        (14, Position()),
        (99, Position()),
    ],
)
def test_the_last_bytes_begin_in_the_file_that_holds_them_whatever_was_removed_before(
    tmp_path: Path, at_most: int, place: Position
) -> None:
    (tmp_path / "ledger-000008.jsonl").write_text("0123456789")
    (tmp_path / "ledger.jsonl").write_text("0123")
    assert last_bytes(tmp_path / "ledger.jsonl", at_most) == place
    assert last_bytes(tmp_path / "none" / "ledger.jsonl", at_most) == Position()


def test_a_file_that_is_put_away_while_the_last_bytes_are_looked_for_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, look = tmp_path / "ledger.jsonl", Path.stat
    book(tmp_path).record("trip", "why")

    def late(there: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        found = look(there, follow_symlinks=follow_symlinks)
        if there == path:
            there.rename(there.with_name("ledger-000001.jsonl"))
        return found

    monkeypatch.setattr(Path, "stat", late)
    assert last_bytes(path, 10) in {Position(), Position(file=1, bytes=look(archives(path)[0]).st_size - 10)}


@pytest.mark.usefixtures("small")
def test_a_long_ledger_is_read_without_holding_more_than_a_file_of_it(tmp_path: Path) -> None:
    ledger = book(tmp_path)
    for number in range(100):
        ledger.record("trip", "so", number=number)
    tail = Tail(ledger.path)
    lists = list(tail.file_by_file())
    assert [number for lines in lists for number in numbers(lines)] == list(range(100))
    assert max(sum(map(len, lines)) for lines in lists) < SMALL_BYTES + 300
    tail.close()
