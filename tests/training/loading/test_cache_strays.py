"""What others put into the cache's folder stops nothing, is never removed, and is said once."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from failsoft.training.loading.cache import CachePolicy, LocalCache

SIZE = 100


def filled(folder: Path, *, times: int = 60) -> LocalCache:
    """A cache into which six times as much was put as it holds."""
    cache = LocalCache(folder, CachePolicy(max_bytes=10 * SIZE))
    for index in range(times):
        cache.keep(index, bytes([index]) * (SIZE - 16))
    return cache


def lay(folder: Path, place: str) -> Path:
    """Something of somebody else's: a folder where its name ends with a stroke."""
    path = folder / place
    path.parent.mkdir(parents=True, exist_ok=True)
    if place.endswith("/"):
        path.mkdir(parents=True)
    else:
        path.write_bytes(b"x" * 5000)
    return path


@pytest.mark.parametrize(
    "place",
    [
        "notes.txt",
        "photos/holiday.jpg",
        "photos/deep/holiday.jpg",
        "001/deep/",
        "001/1.sample.bak",
        "001/notes.txt",
        "0001/1.sample",
        "lost+found/",
        "002/2.sample/",
    ],
)
def test_a_stray_stops_nothing_is_not_removed_and_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, place: str
) -> None:
    stray = lay(tmp_path, place)
    cache = filled(tmp_path)
    assert stray.exists()
    assert 0 < cache.size_bytes() <= 11 * SIZE
    assert cache.refused <= (1 if place == "002/2.sample/" else 0)
    assert sum("is not of this cache" in record.message for record in caplog.records) == 1
    assert str(tmp_path / place.split("/", maxsplit=1)[0]) in caplog.text


def test_a_folder_that_can_not_be_read_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "abc").mkdir()
    scandir = os.scandir

    def refuse(path: str | Path) -> object:
        if str(path).endswith("abc"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    cache = filled(tmp_path)
    assert (cache.refused, cache.size_bytes() <= 11 * SIZE) == (0, True)


def test_where_nothing_can_be_removed_the_cache_takes_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, *, missing_ok: bool = False) -> None:
        raise PermissionError(13, "Permission denied", str(path), missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)
    cache = filled(tmp_path)
    assert cache.refused > 40
    assert cache.size_bytes() <= 11 * SIZE


def test_what_a_killed_writer_left_aside_goes_like_all_else(tmp_path: Path) -> None:
    aside = lay(tmp_path, "001/.1.sample.4711-0a0b0c0d")
    filled(tmp_path)
    assert not aside.exists()


def test_it_travels_to_another_process(tmp_path: Path) -> None:
    cache = pickle.loads(pickle.dumps(filled(tmp_path)))  # noqa: S301 -- it is our own
    assert cache.size_bytes() > 0


@pytest.mark.parametrize("kind", ["folder", "fifo", "link", "link to nowhere"])
def test_what_is_no_lock_under_the_locks_name_keeps_the_cache_bounded_and_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    folder, foreign = tmp_path / "cache", tmp_path / "foreign"
    folder.mkdir()
    foreign.write_text("theirs", "utf-8")
    make: dict[str, Callable[[Path], object]] = {
        "folder": Path.mkdir,
        "fifo": os.mkfifo,
        "link": lambda lock: lock.symlink_to(foreign),
        "link to nowhere": lambda lock: lock.symlink_to(tmp_path / "nowhere"),
    }
    make[kind](folder / "lock")
    cache = filled(folder)
    assert 0 < cache.size_bytes() <= 11 * SIZE
    assert cache.refused == 0
    assert foreign.read_text("utf-8") == "theirs"
    assert not (tmp_path / "nowhere").exists()
    assert sum("is not of this cache" in record.message for record in caplog.records) == (kind != "fifo")
