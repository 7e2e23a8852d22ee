"""Lines are taken out of a ledger while others write and follow it: nothing else is lost, told twice, or left torn."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from failsoft.errors import ConfigError
from failsoft.health import ledger_files
from failsoft.health.clock import ManualClock
from failsoft.health.json_object import json_object
from failsoft.health.ledger import Ledger, Side, parse_event, read_ledger
from failsoft.health.ledger_files import Tail, append_line, archives, put_away
from failsoft.health.ledger_retention import judge_events, shorten
from failsoft.health.line_removal import Removed, remove_lines, remove_whole_files
from failsoft.health.retention import DAY_S, RetentionPolicy, read_retention


def ledger_of(folder: Path, days: int, *, per_file: int = 10) -> Path:
    """One event a day, ten of them in a file; the clock ends at the last one."""
    clock = ManualClock(wall_s=0.0)
    ledger = Ledger(folder / "ledger.jsonl", clock, side=Side.SERVING, subject="app")
    for day in range(days):
        ledger.record("trip", f"secret words of day {day:03}", number=day)
        clock.advance(DAY_S)
        if day % per_file == per_file - 1:
            put_away(ledger.path, full_bytes=1)
    return ledger.path


def days_of(path: Path) -> list[int]:
    return [event.data["number"] for event in read_ledger(path).events]


def all_bytes(folder: Path) -> bytes:
    return b"".join(there.read_bytes() for there in folder.rglob("*") if there.is_file())


def test_events_from_before_a_moment_go_with_every_byte_and_the_others_keep_their_place(tmp_path: Path) -> None:
    path = ledger_of(tmp_path, 25)
    sizes = {there.name: there.stat().st_size for there in archives(path)}
    removed = remove_lines(path, judge_events(13.5 * DAY_S))
    assert (removed, days_of(path)) == (Removed(lines=14, files=1), list(range(14, 25)))
    assert not any(f"day {day:03}".encode() in all_bytes(tmp_path) for day in range(14))
    assert [there.name for there in archives(path)] == ["ledger-000002.jsonl"], "of the oldest nothing was left"
    assert archives(path)[0].stat().st_size == sizes["ledger-000002.jsonl"]
    assert {there.stat().st_mode & 0o777 for there in tmp_path.iterdir()} == {0o600}


def test_a_dry_run_counts_the_same_and_changes_nothing(tmp_path: Path) -> None:
    path = ledger_of(tmp_path, 25)
    before = {there.name: there.read_bytes() for there in tmp_path.iterdir()}
    assert remove_lines(path, judge_events(13.5 * DAY_S), dry_run=True) == Removed(lines=14, files=1)
    assert {there.name: there.read_bytes() for there in tmp_path.iterdir()} == before | {".ledger.jsonl.lock": b""}


def test_who_follows_is_told_of_nothing_twice_and_of_nothing_that_came_since_not_at_all(tmp_path: Path) -> None:
    path = ledger_of(tmp_path, 25)
    tail = Tail(path)
    assert len(tail.new_lines()) == 25
    kept = Tail(path, after=tail.position)
    remove_lines(path, judge_events(22.5 * DAY_S))
    Ledger(path, ManualClock(wall_s=30 * DAY_S), side=Side.SERVING, subject="app").record("trip", "new", number=30)
    for follower in (tail, kept):
        assert [event.data["number"] for line in follower.new_lines() if (event := parse_event(line))] == [30]
        follower.close()


@example(steps=["goes", "look", "remove", "stay", "put away", "stay"])
@given(steps=st.lists(st.sampled_from(["stay", "goes", "remove", "put away", "look", "come back"]), max_size=14))
def test_who_follows_sees_each_line_that_stays_once_and_in_order_whatever_happens_between_two_looks(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    path = tmp_path_factory.mktemp("followed") / "ledger.jsonl"
    append_line(path, b"stay first\n")
    tail, seen, written = Tail(path), list[bytes](), [b"stay first"]
    for number, step in enumerate([*steps, "look"]):
        match step:
            case "stay" | "goes":
                written.append(f"{step} {number}".encode())
                append_line(path, written[-1] + b"\n")
            case "remove":
                remove_lines(path, lambda line: None if line.startswith(b"goes") else line)
            case "put away":
                put_away(path, full_bytes=1)
            case "look":
                seen += tail.new_lines()
            case _:
                seen += tail.new_lines()
                tail.close()
                tail = Tail(path, after=tail.position)
    assert [line for line in seen if line.startswith(b"stay")] == [line for line in written if line.startswith(b"stay")]
    assert len(set(seen)) == len(seen)
    tail.close()


def test_a_line_that_is_written_while_another_file_is_put_there_is_not_lost_though_a_backup_links_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = ledger_of(tmp_path, 2)
    (tmp_path / "backup").hardlink_to(path)
    share, late = ledger_files._share, [lambda: remove_lines(path, judge_events(0.5 * DAY_S))]

    def another_comes_first(handle: int) -> None:
        if late:
            late.pop()()
        share(handle)

    monkeypatch.setattr(ledger_files, "_share", another_comes_first)
    append_line(path, b'{"at_s":1e9,"number":7}\n')
    assert path.read_bytes().rstrip().endswith(b'"number":7}')


def test_a_file_that_takes_anothers_place_keeps_its_rights_and_its_owner(tmp_path: Path) -> None:
    path = ledger_of(tmp_path, 2)
    path.chmod(0o640)
    if os.geteuid() == 0:  # as by sudo, of an app that runs as somebody else
        os.chown(tmp_path, 1234, 1234)
        os.chown(path, 1234, 1234)
    before = path.stat()
    remove_lines(path, judge_events(0.5 * DAY_S))
    after = path.stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    assert {there.stat().st_uid for there in tmp_path.iterdir()} == {before.st_uid}


def test_where_even_root_may_not_give_files_away_no_event_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(errno.EPERM, "not permitted")

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "fchown", refused)
    path = ledger_of(tmp_path, 3)
    assert remove_lines(path, judge_events(1.5 * DAY_S)) == Removed(lines=2)
    assert days_of(path) == [2]


def test_a_line_that_is_torn_goes_too_whether_or_not_somebody_wrote_behind_it(tmp_path: Path) -> None:
    path = ledger_of(tmp_path, 2)
    append_line(path, b'{"v":1,"why":"secret torn')
    assert remove_lines(path, judge_events(0.5 * DAY_S)) == Removed(lines=2)
    append_line(path, b'{"v":1,"why":"another secret torn')
    append_line(path, path.read_bytes().splitlines()[1] + b"\n")
    assert remove_lines(path, judge_events(0.5 * DAY_S)).lines == 1
    assert b"torn" not in all_bytes(tmp_path)
    assert days_of(path) == [1, 1]


def test_what_a_killed_removal_left_aside_is_gone_after_the_next(tmp_path: Path) -> None:
    path = ledger_of(tmp_path, 3)
    (tmp_path / ".ledger.jsonl.aside").write_bytes(b"secret words of day 000")
    (tmp_path / ".ledger-000007.jsonl.aside").write_bytes(b"secret words of day 000")  # its file has gone since
    remove_lines(path, judge_events(0.5 * DAY_S))
    assert b"day 000" not in all_bytes(tmp_path)


def die_before_the_rename(path: Path) -> None:
    Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
    remove_lines(path, judge_events(DAY_S))


def test_a_kill_in_the_midst_leaves_the_ledger_whole(tmp_path: Path) -> None:
    path = ledger_of(tmp_path, 5)
    victim = multiprocessing.get_context("spawn").Process(target=die_before_the_rename, args=(path,))
    victim.start()
    victim.join(60.0)
    assert victim.exitcode == -signal.SIGKILL
    assert days_of(path) == [0, 1, 2, 3, 4]
    remove_lines(path, judge_events(DAY_S))  # its lock is free
    assert days_of(path) == [1, 2, 3, 4]


def write_on(path: Path, count: int) -> None:
    for number in range(count):
        append_line(path, b'{"at_s":1000,"number":%d}\n' % number)


def test_no_line_is_lost_that_another_process_writes_meanwhile(tmp_path: Path) -> None:
    path, count = tmp_path / "ledger.jsonl", 3000
    append_line(path, b'{"at_s":1}\n')
    writer = multiprocessing.get_context("spawn").Process(target=write_on, args=(path, count))
    writer.start()
    while writer.is_alive():
        append_line(path, b'{"at_s":1}\n')
        remove_lines(path, judge_events(500.0))
    writer.join()
    bodies = filter(None, map(json_object, path.read_bytes().split(b"\n")))
    assert [body["number"] for body in bodies if "number" in body] == list(range(count))


def test_a_policy_bounds_a_ledger_in_age_and_in_size(tmp_path: Path) -> None:
    path = ledger_of(tmp_path, 45)
    policy = RetentionPolicy(texts_days=1, specimens_days=1, answers_days=1, ledger_days=20)
    assert shorten(path, policy, now_s=45 * DAY_S).lines == 25
    assert shorten(path, policy, now_s=45.5 * DAY_S) == Removed(), "it is done once a day"
    assert days_of(path)[0] == 25
    small = RetentionPolicy(ledger_mb=archives(path)[-1].stat().st_size / 1e6)
    assert shorten(path, small, now_s=46 * DAY_S).files == 1
    assert days_of(path)[0] == 30
    assert remove_whole_files(path, keep_bytes=1) == Removed(), "the newest stays: numbers go on from it"


def test_events_of_a_clock_that_was_ahead_keep_no_older_ones_from_going(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    clock = ManualClock(wall_s=70 * 365 * DAY_S)  # a machine that began before it heard of the time
    ledger = Ledger(path, clock, side=Side.SERVING, subject="app")
    for number in range(-3, 0):
        ledger.record("trip", "by a clock that is ahead", number=number)
    put_away(path, full_bytes=1)
    ledger.record("trip", "by a clock that is ahead", number=-4)
    clock.jump_wall(-clock.wall_s())
    ledger_of(tmp_path, 45)
    policy = RetentionPolicy(texts_days=1, specimens_days=1, answers_days=1, ledger_days=20)
    assert shorten(path, policy, now_s=45 * DAY_S).lines == 25
    assert days_of(path) == [-3, -2, -1, -4, *range(25, 45)]
    assert shorten(path, policy, now_s=45.5 * DAY_S) == Removed(), "it is done once a day"


def test_a_ledger_that_fills_a_file_holds_itself_to_the_home_s_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from failsoft.health import ledger as ledger_module

    monkeypatch.setattr(ledger_module, "FULL_BYTES", 1000)
    monkeypatch.setattr(ledger_module, "put_away", lambda path: put_away(path, full_bytes=1000))
    (tmp_path / "retention.toml").write_text("ledger_mb = 0.0035")
    ledger_of(tmp_path, 200, per_file=10**6)
    assert len(archives(tmp_path / "ledger.jsonl")) == 3
    (tmp_path / "retention.toml").write_text("ledger_mb = 'odd'")
    ledger_of(tmp_path, 40, per_file=10**6)
    assert len(archives(tmp_path / "ledger.jsonl")) > 3, "what can't be read removes nothing"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("texts_days = 0", "texts_days is 0"),
        ("texts_days = nan", "texts_days is nan"),
        ("texts_days = true", "texts_days is True"),
        ("texts_days = 91", "each is a part of the next"),
        ("txts_days = 3", "'txts_days'"),
        ("texts_days", "give a TOML file"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused_in_words(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "retention.toml").write_text(text)
    with pytest.raises(ConfigError, match=r"retention\.toml") as refused:
        read_retention(tmp_path)
    assert said in str(refused.value)


def test_a_home_keeps_what_it_names_and_the_defaults_for_all_else(tmp_path: Path) -> None:
    assert read_retention(tmp_path) == RetentionPolicy()
    (tmp_path / "retention.toml").write_text("texts_days = 2.5\nledger_days = inf\nledger_mb = inf\n")
    policy = read_retention(tmp_path)
    assert (policy.cut(10 * DAY_S).texts_s, policy.ledger_bytes) == (7.5 * DAY_S, None)
    assert policy.cut(1.0).ledger_s == float("-inf")


@given(
    lines=st.lists(st.tuples(st.binary(max_size=30), st.booleans()), max_size=12),
    torn=st.binary(max_size=10),
    read=st.integers(0, 12),
)
def test_any_lines_stay_where_they_are_whichever_go(
    tmp_path_factory: pytest.TempPathFactory, lines: list[tuple[bytes, bool]], torn: bytes, read: int
) -> None:
    """Whatever bytes they are: the length, the lines that stay, and what a follower has still to see."""
    path = tmp_path_factory.mktemp("any") / "ledger.jsonl"
    marked = [(b"goes" if goes else b"stay") + line.replace(b"\n", b"") for line, goes in lines]
    path.write_bytes(b"".join(line + b"\n" for line in marked[:read]))
    tail = Tail(path)
    tail.new_lines()
    with path.open("ab") as file:
        file.write(
            b"".join(line + b"\n" for line in marked[read:]) + (b"torn" + torn.replace(b"\n", b"") if torn else b"")
        )
    size = path.stat().st_size
    remove_lines(path, lambda line: line if line.startswith(b"stay") else None)
    left = [line.rstrip() for line in path.read_bytes().split(b"\n") if line.strip()]
    assert path.stat().st_size == size
    assert left == [line.rstrip() for line in marked if line.startswith(b"stay")]
    seen = [line.rstrip() for line in tail.new_lines() if line.startswith(b"stay")]  # it may hold the old file open
    assert seen == [line.rstrip() for line in marked[read:] if line.startswith(b"stay")]
    tail.close()
