"""A remote place is known to be usable, or why it is not, before anybody relies on it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from pyarrow import fs

from failsoft.artifacts.remote_access import access_trouble
from failsoft.artifacts.remote_place import Place, place_of


def test_a_place_that_can_be_written_is_left_as_it_was_but_made(tmp_path: Path) -> None:
    assert access_trouble(lambda: place_of(f"file://{tmp_path}/a/b")) is None
    assert list((tmp_path / "a" / "b").iterdir()) == []


def test_a_place_below_a_file_is_trouble_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    said = access_trouble(lambda: place_of(f"file://{tmp_path}/file/run"))
    assert said is not None
    assert "file" in said


class Mute(fs.FileSystemHandler):  # type: ignore[misc]  # pyarrow has no types for it
    """Answers nothing until the test is over."""

    def __init__(self) -> None:
        self.over = threading.Event()

    def get_type_name(self) -> str:
        return "mute"

    def create_dir(self, path: str, recursive: bool) -> None:
        self.over.wait(60.0)
        raise OSError("over")


Mute.__abstractmethods__ = frozenset()


def test_a_store_that_never_answers_is_not_waited_for_for_ever() -> None:
    mute = Mute()
    place = Place(filesystem=fs.PyFileSystem(mute), root="bucket/run", shown="mute://bucket/run")
    assert access_trouble(lambda: place, patience_s=0.1) == "no answer within 0.1 s"
    mute.over.set()


def test_a_store_that_gives_other_bytes_back_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = place_of(f"file://{tmp_path}/x")
    monkeypatch.setattr("failsoft.artifacts.remote_access._WORDS", _Fickle(b"first"))
    assert access_trouble(lambda: place) == "it gives other bytes back than were written"


class _Fickle(bytes):
    """Equal to nothing."""

    def __eq__(self, _other: object) -> bool:
        return False

    __hash__ = bytes.__hash__
