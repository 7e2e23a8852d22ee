"""One token is made, whole, by many at once, also where the file system has no hard links or no locks."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from pathlib import Path

import pytest

from failsoft.artifacts.tokens import TokenPlace, make_token
from failsoft.health.clock import ManualClock, SystemClock

SUPPORT = ["links and locks", "no links", "neither"]


@pytest.fixture(params=SUPPORT)
def token(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where one is to be made, on a file system that can do so much."""

    def no_links(*_paths: Path) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    def no_locks(*_call: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    if request.param != "links and locks":
        monkeypatch.setattr(os, "link", no_links)
    if request.param == "neither":
        monkeypatch.setattr(fcntl, "flock", no_locks)
    return tmp_path / "home" / "operator-token"


def test_it_is_made_for_its_owner_alone_and_nothing_else_stays(token: Path) -> None:
    make_token(token, SystemClock())
    assert len(token.read_text("utf-8")) == 32
    assert token.stat().st_mode & 0o777 == 0o600
    assert list(token.parent.iterdir()) == [token]


def test_one_that_is_there_stays(token: Path) -> None:
    make_token(token, SystemClock())
    before = token.read_text("utf-8")
    make_token(token, SystemClock())
    assert token.read_text("utf-8") == before


def test_many_that_make_one_at_once_find_one_whole_token(token: Path) -> None:
    together, found = threading.Barrier(16), list[str]()

    def make() -> None:
        together.wait()
        make_token(token, SystemClock())
        found.append(token.read_text("utf-8"))

    makers = [threading.Thread(target=make) for _ in range(16)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
    assert [len(text) for text in found] == [32] * 16
    assert len(set(found)) == 1
    assert list(token.parent.iterdir()) == [token]


def test_one_that_comes_in_between_stays_though_there_are_neither_links_nor_locks(
    token: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def after_another(*paths: Path) -> None:
        token.write_text("another one's token, made meanwhile", "utf-8")
        link(*paths)

    monkeypatch.setattr(os, "link", after_another)
    monkeypatch.setattr(Path, "exists", lambda _path: False)  # whoever looked before that saw nothing
    make_token(token, SystemClock())
    assert token.read_text("utf-8") == "another one's token, made meanwhile"
    assert list(token.parent.iterdir()) == [token]


def test_a_disk_that_takes_no_byte_leaves_no_empty_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_call: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    written = list[int]()

    def full(handle: int, content: bytes) -> int:
        written.append(handle)
        if len(written) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return len(content)

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(fcntl, "flock", refuse)
    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left"):
        make_token(tmp_path / "operator-token", SystemClock())
    assert list(tmp_path.iterdir()) == []


def test_another_ones_token_that_stays_empty_is_waited_for_a_moment_and_left(tmp_path: Path) -> None:
    token, clock = tmp_path / "operator-token", ManualClock()
    token.touch()
    make_token(token, clock)
    assert list(tmp_path.iterdir()) == [token]
    assert token.read_bytes() == b""
    assert 0.9 < clock.monotonic_s() < 1.1


def test_a_folder_that_takes_nothing_is_an_error_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_paths: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "link", full)
    with pytest.raises(OSError, match="No space left"):
        make_token(tmp_path / "operator-token", SystemClock())
    assert list(tmp_path.iterdir()) == []


def test_a_token_that_another_process_is_just_writing_is_read_when_it_is_whole(tmp_path: Path) -> None:
    token = tmp_path / "operator-token"
    token.touch(0o600)
    writer = threading.Timer(0.1, token.write_text, ("a-token-that-is-long-enough", "utf-8"))
    writer.start()
    assert TokenPlace(whose="operator", variable="NO_SUCH_VARIABLE", path=token).is_plain
    writer.join()
