from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from failsoft.artifacts.asides import being_filled, being_read, has_it_alone, left, remove_if_left
from failsoft.errors import ArtifactMissingError

_HOLDS = """
import sys
from pathlib import Path
from failsoft.artifacts.asides import being_filled
with being_filled(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_what_is_being_filled_is_not_left_and_afterwards_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "c-1"
    with being_filled(folder):
        (folder / "part").write_text("x")
        assert left(folder.parent, "c-*") == []
        assert not remove_if_left(folder)
    assert left(folder.parent, "c-*") == [folder]
    assert remove_if_left(folder)
    assert not folder.exists()


def test_a_writer_in_another_process_is_seen_and_its_death_too(tmp_path: Path) -> None:
    folder = tmp_path / "c-1"
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDS, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"held\n"
        assert left(tmp_path, "c-*") == []
        writer.kill()
    assert left(tmp_path, "c-*") == [folder]


def test_a_folder_that_was_renamed_while_it_was_held_is_no_longer_there_to_be_left(tmp_path: Path) -> None:
    with being_filled(tmp_path / "c-1"):
        (tmp_path / "c-1").rename(tmp_path / "published")
    assert left(tmp_path, "c-*") == []
    assert not remove_if_left(tmp_path / "c-1")
    assert (tmp_path / "published").is_dir()


def test_one_that_is_there_is_not_filled_again(tmp_path: Path) -> None:
    (tmp_path / "c-1").mkdir()
    with pytest.raises(FileExistsError), being_filled(tmp_path / "c-1"):
        pass


def test_where_nothing_was_ever_made_nothing_is_left(tmp_path: Path) -> None:
    assert left(tmp_path / "nowhere", "c-*") == []


def test_on_a_file_system_without_locks_work_goes_on_and_nothing_is_called_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_handle: int, _how: int) -> None:
        raise OSError(37, "no locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with being_filled(tmp_path / "c-1"):
        pass
    assert left(tmp_path, "c-*") == []
    assert not remove_if_left(tmp_path / "c-1")


def test_what_somebody_reads_stays_until_he_is_done(tmp_path: Path) -> None:
    folder = tmp_path / "c-1"
    folder.mkdir()
    with being_read(folder), being_read(folder):
        assert left(tmp_path, "c-*") == []
        assert not remove_if_left(folder)
    assert remove_if_left(folder)
    with pytest.raises(ArtifactMissingError, match="removed just now"), being_read(folder):
        pass


def test_one_of_two_has_a_file_alone_until_it_closes_it_and_both_where_there_are_no_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lock"
    first, second = (os.open(path, os.O_RDWR | os.O_CREAT) for _ in range(2))
    try:
        assert has_it_alone(first)
        assert has_it_alone(first), "its own lock is in nobody's way"
        assert not has_it_alone(second)
    finally:
        os.close(first)
    try:
        assert has_it_alone(second)
        monkeypatch.setattr("fcntl.flock", refuse)
        assert has_it_alone(second)
    finally:
        os.close(second)


def refuse(*_: object) -> None:
    raise OSError(errno.ENOLCK, "no locks here")
