"""Releases kept in a node's memory: whole, verified when they are used, and no more of them than asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from failsoft.artifacts.home import Home
from failsoft.artifacts.resign import sign_again
from failsoft.artifacts.signing import KEY_VARIABLE
from failsoft.artifacts.store import ArtifactStore
from failsoft.errors import ArtifactMissingError
from failsoft.health.clock import ManualClock
from failsoft.serving.replicas.host_shelf import HostShelf, memory_folder

CLOCK = ManualClock()


class Node:
    """A disk with three releases, and memory that is a folder."""

    def __init__(self, tmp_path: Path) -> None:
        self.store = Home(root=tmp_path / "home").releases(CLOCK)
        self.memory = tmp_path / "memory" / "releases"
        self.memory.parent.mkdir()
        self.free = 10**9
        for name in ("r1", "r2", "r3"):
            self.store.publish(name, self._write, meta={"previous": None})
        self.shelf = self.another()

    def another(self) -> HostShelf:
        """The shelf of another replica on this node."""
        return HostShelf(self.store, self.memory, CLOCK, free_bytes=lambda _path: self.free)

    def publish_another(self, name: str) -> None:
        """A release with other contents."""

        def write(folder: Path) -> None:
            (folder / "weights").write_bytes(b"other")

        self.store.publish(name, write, meta={"previous": None})

    @staticmethod
    def _write(folder: Path) -> None:
        (folder / "parts").mkdir()
        (folder / "parts" / "weights").write_bytes(b"w" * 1000)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_kept_release_is_opened_from_memory_whole(node: Node) -> None:
    node.shelf.keep(["r1", "r2"])
    artifact, from_memory = node.shelf.open("r1")
    assert from_memory
    assert artifact.path == node.memory / "r1"
    assert (artifact.path / "parts" / "weights").read_bytes() == b"w" * 1000
    assert artifact.manifest.digest == node.store.open("r1").manifest.digest


def test_it_comes_back_also_when_storage_is_gone(node: Node) -> None:
    node.shelf.keep(["r1"])
    node.store.remove("r1")
    assert node.shelf.open("r1")[1]


def test_what_is_not_kept_comes_from_storage(node: Node) -> None:
    artifact, from_memory = node.shelf.open("r1")
    assert (artifact.path, from_memory) == (node.store.root / "r1", False)
    with pytest.raises(ArtifactMissingError):
        node.shelf.open("r9")


def test_a_copy_that_was_damaged_in_memory_is_thrown_away_and_storage_read(node: Node) -> None:
    node.shelf.keep(["r1"])
    (node.memory / "r1" / "parts" / "weights").write_bytes(b"v" + b"w" * 999)
    artifact, from_memory = node.shelf.open("r1")
    assert (artifact.path, from_memory) == (node.store.root / "r1", False)
    assert "damaged" in node.shelf.refusals["r1"]
    assert node.shelf.kept() == []


def test_only_what_is_asked_for_stays_in_memory(node: Node) -> None:
    node.shelf.keep(["r1", "r2"])
    node.shelf.keep(["r2", "r3"])
    assert sorted(node.shelf.kept()) == ["r2", "r3"]
    node.shelf.forget()
    assert node.shelf.kept() == []


def test_replicas_of_a_node_share_a_copy(node: Node) -> None:
    node.shelf.keep(["r1"])
    other = node.another()
    other.keep(["r1"])
    assert (other.kept(), other.refusals) == (["r1"], {})
    assert other.open("r1")[1]


def test_short_memory_keeps_nothing_and_says_so(node: Node) -> None:
    node.free = 1200
    node.shelf.keep(["r1"])
    assert node.shelf.kept() == []
    assert node.shelf.refusals["r1"] == "1200 bytes of memory are free, 1500 are needed to keep it"
    node.free = 10**6
    node.shelf.keep(["r1"])
    assert (node.shelf.kept(), node.shelf.refusals) == (["r1"], {})


def test_a_node_without_a_memory_file_system_keeps_nothing_and_says_so(node: Node, tmp_path: Path) -> None:
    shelf = HostShelf(node.store, tmp_path / "absent" / "releases", CLOCK)
    shelf.keep(["r1"])
    assert "not kept in memory" in shelf.refusals["r1"]
    assert not shelf.open("r1")[1]


def test_a_copy_of_another_release_that_had_the_same_name_is_not_served(node: Node) -> None:
    """A home that was made anew in the same place finds the old one's copies in memory."""
    node.shelf.keep(["r1"])
    node.store.remove("r1")
    node.publish_another("r1")
    artifact, from_memory = node.shelf.open("r1")
    assert ((artifact.path / "weights").read_bytes(), from_memory) == (b"other", False)
    node.shelf.keep(["r1"])
    kept, from_memory = node.shelf.open("r1")
    assert ((kept.path / "weights").read_bytes(), from_memory) == (b"other", True)


def test_a_copy_of_another_release_gives_way_also_before_it_is_opened(node: Node) -> None:
    node.shelf.keep(["r1"])
    node.store.remove("r1")
    node.publish_another("r1")
    node.another().keep(["r1"])
    assert (node.memory / "r1" / "weights").read_bytes() == b"other"


def test_what_another_user_put_there_is_neither_read_nor_added_to(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.shelf.keep(["r1"])
    monkeypatch.setattr(os, "geteuid", lambda: node.memory.stat().st_uid + 1)
    assert node.shelf.kept() == []
    assert not node.shelf.open("r1")[1]
    node.shelf.keep(["r2"])
    assert "belongs to another user" in node.shelf.refusals["r2"]
    assert not (node.memory / "r2").exists()


def test_only_the_owner_may_look_into_the_memory_folder(node: Node) -> None:
    node.shelf.keep(["r1"])
    assert node.memory.stat().st_mode & 0o077 == 0


def test_short_memory_is_seen_without_reading_the_release(node: Node) -> None:
    """It is tried again every other second: a large model would else be read from storage for ever."""
    node.free = 1200
    (node.store.root / "r1" / "parts" / "weights").unlink()
    node.shelf.keep(["r1"])
    assert "are needed to keep it" in node.shelf.refusals["r1"]


def test_what_a_killed_replica_began_to_copy_is_given_back_and_a_live_copy_is_not(node: Node) -> None:
    node.shelf.keep(["r1"])
    for name, age_s in ((".aside-r2-dead", 601.0), (".aside-r2-live", 10.0)):
        begun = node.memory / name / "weights"
        begun.parent.mkdir()
        begun.write_bytes(b"w")
        for path in (begun, begun.parent):
            os.utime(path, (CLOCK.wall_s() - age_s, CLOCK.wall_s() - age_s))
    node.shelf.keep(["r1"])
    assert [path.name for path in node.memory.glob(".aside-*")] == [".aside-r2-live"]
    assert node.shelf.kept() == ["r1"]


def test_two_homes_keep_theirs_apart() -> None:
    assert memory_folder(Path("/a")) != memory_folder(Path("/b"))


def test_a_copy_whose_key_was_retired_is_made_anew_once_the_release_was_signed_anew(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "o" * 32)
    for name in ("r1", "r2", "r3"):
        sign_again(node.store, name, vouch=True)
    node.shelf.keep(["r1"])
    monkeypatch.setenv(KEY_VARIABLE, "n" * 32)
    sign_again(node.store, "r1", vouch=True)
    assert not node.shelf.open("r1")[1], "the copy is not believed"
    node.shelf.keep(["r1"])
    assert node.shelf.refusals == {}
    assert node.shelf.open("r1")[1]


def test_a_copy_that_another_replica_finishes_while_it_is_looked_at_ends_no_duty(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder goes by a rename; the walk through it raised, and with that the replica lost its loaded model."""
    begun = node.memory / ".aside-r2-1"
    (begun / "parts").mkdir(parents=True)
    (begun / "parts" / "weights").write_bytes(b"w")
    walk = Path.rglob

    def gone(path: Path, pattern: str) -> Iterator[Path]:
        if path == begun:
            begun.rename(node.memory / "gone")
            raise FileNotFoundError(2, "No such file or directory", str(begun / "parts"))  # as the walk itself does
        return walk(path, pattern)

    monkeypatch.setattr(Path, "rglob", gone)
    node.shelf.keep(["r1"])
    assert node.shelf.open("r1")[1]


def test_memory_that_cannot_be_looked_through_keeps_nothing_and_says_so(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.shelf.keep(["r1"])
    with monkeypatch.context() as broken:
        broken.setattr(ArtifactStore, "foreign", lambda _store: (_ for _ in ()).throw(OSError(5, "I/O error")))
        node.shelf.keep(["r1", "r2"])
        assert {name: "I/O error" in why for name, why in node.shelf.refusals.items()} == {"r1": True, "r2": True}
    node.shelf.keep(["r1", "r2"])
    assert node.shelf.refusals == {}
