"""One token is made, whole, by many at once, also where the file system has no hard links or no locks."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from pathlib import Path

import pytest

from failsoft.artifacts.tokens import make_token

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
    make_token(token)
    assert len(token.read_text("utf-8")) == 32
    assert token.stat().st_mode & 0o777 == 0o600
    assert list(token.parent.iterdir()) == [token]


def test_one_that_is_there_stays(token: Path) -> None:
    make_token(token)
    before = token.read_text("utf-8")
    make_token(token)
    assert token.read_text("utf-8") == before


def test_many_that_make_one_at_once_find_one_whole_token(token: Path, request: pytest.FixtureRequest) -> None:
    together, found = threading.Barrier(16), list[str]()

    def make() -> None:
        together.wait()
        make_token(token)
        found.append(token.read_text("utf-8"))

    makers = [threading.Thread(target=make) for _ in range(16)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
    assert [len(text) for text in found] == [32] * 16
    if "neither" not in request.node.name:  # there the last one holds, which whoever reads it finds out at once
        assert len(set(found)) == 1
    assert list(token.parent.iterdir()) == [token]


def test_a_folder_that_takes_nothing_is_an_error_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_paths: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "link", full)
    with pytest.raises(OSError, match="No space left"):
        make_token(tmp_path / "operator-token")
    assert list(tmp_path.iterdir()) == []
