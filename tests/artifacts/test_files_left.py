"""A writer that is killed leaves its half of a file aside; the next write to that folder removes it, and no other."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from failsoft.artifacts import store, syncing
from failsoft.artifacts.asides import replace_whole
from failsoft.artifacts.store import write_durably
from failsoft.training.survival.notice import drop_notice, drop_resize
from failsoft.training.survival.preflight_record import Record, write_record

HOUR_S = 3600.0
KILLED = """
import os, signal, sys
from pathlib import Path
from failsoft.artifacts import store, syncing
from failsoft.artifacts.store import write_durably
def die(path, content):
    path.write_bytes(content[:3])
    os.kill(os.getpid(), signal.SIGKILL)
store.write_synced = die
write_durably(Path(sys.argv[1]), b"half of it")
"""


def aged(path: Path, *, by_s: float = 2 * HOUR_S) -> Path:
    """As if it had been written so long ago."""
    then_s = path.stat().st_mtime - by_s
    os.utime(path, (then_s, then_s))
    return path


def asides(folder: Path) -> list[Path]:
    return sorted(folder.glob(".aside-*"))


def left_by_a_killed_writer(folder: Path) -> Path:
    ended = subprocess.run([sys.executable, "-c", KILLED, str(folder / "report.json")], check=False)
    assert ended.returncode == -signal.SIGKILL
    (found,) = asides(folder)
    return found


def test_what_a_killed_writer_left_goes_with_a_later_write_to_the_folder(tmp_path: Path) -> None:
    left = left_by_a_killed_writer(tmp_path)
    write_durably(tmp_path / "other.json", b"soon after")
    assert asides(tmp_path) == [left], "too young: a writer may not have locked it yet"
    aged(left)
    write_durably(tmp_path / "other.json", b"an hour later")
    assert asides(tmp_path) == []


def test_what_a_writer_that_lives_fills_stays_however_old(tmp_path: Path) -> None:
    left = aged(left_by_a_killed_writer(tmp_path))
    with left.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        write_durably(tmp_path / "other.json", b"beside it")
        assert asides(tmp_path) == [left]
    write_durably(tmp_path / "other.json", b"after it")
    assert asides(tmp_path) == []


def test_a_writer_holds_its_aside_until_it_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sync = syncing.write_synced

    def slow(path: Path, content: bytes) -> None:
        sync(path, content)
        if path.name.startswith(".aside-slow"):
            aged(path)
            write_durably(tmp_path / "quick.json", b"another writer")

    monkeypatch.setattr(store, "write_synced", slow)
    write_durably(tmp_path / "slow.json", b"whole")
    assert (tmp_path / "slow.json").read_bytes() == b"whole"
    assert asides(tmp_path) == []


def test_nothing_else_goes(tmp_path: Path) -> None:
    kept = [tmp_path / name for name in (".aside-notes", ".aside-x-1234567", "aside-x-0a0b0c0d", ".aside-x-0A0B0C0D")]
    folder = tmp_path / ".aside-release-0a0b0c0d"
    folder.mkdir()
    for path in kept:
        path.write_text("of somebody")
    link = tmp_path / ".aside-link-0a0b0c0d"
    link.symlink_to(kept[0])
    for path in [*kept, folder]:
        aged(path)
    write_durably(tmp_path / "other.json", b"x")
    assert all(path.exists() for path in [*kept, folder, link])


def test_what_can_not_be_swept_stops_no_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = aged(left_by_a_killed_writer(tmp_path))
    unlink = Path.unlink

    def refuse(path: Path, *, missing_ok: bool = False) -> None:
        if path == left:
            raise PermissionError(13, "Permission denied", str(path))
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)
    write_durably(tmp_path / "other.json", b"x")
    assert (tmp_path / "other.json").read_bytes() == b"x"


NOTED: dict[str, Callable[[Path], object]] = {
    "a notice": lambda folder: drop_notice(folder, "the node is drained"),
    "a resize": lambda folder: drop_resize(folder, "more workers"),
    "a preflight's record": lambda folder: write_record(folder, Record()),
}


@pytest.mark.parametrize("what", NOTED)
def test_a_small_note_removes_what_killed_writers_left_and_leaves_nothing(tmp_path: Path, what: str) -> None:
    left = aged(left_by_a_killed_writer(tmp_path))
    NOTED[what](tmp_path)
    assert not left.exists()
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("what", NOTED)
def test_what_a_killed_writer_of_a_small_note_left_goes_with_a_later_write(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", _refuse)
        patch.setattr(Path, "unlink", _refuse)  # as dead as a process can be here
        with pytest.raises(OSError, match="refused"):
            NOTED[what](tmp_path)
    (found,) = tmp_path.iterdir()
    aged(found)
    replace_whole(tmp_path / "other.json", b"an hour later")
    assert [path.name for path in tmp_path.iterdir()] == ["other.json"]


def _refuse(_path: Path, *_args: object, **_options: object) -> None:
    raise OSError("refused")
