"""Releases kept in a node's memory: whole, verified when they are used, and no more of them than asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from failsoft.artifacts.home import Home
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


def test_two_homes_keep_theirs_apart() -> None:
    assert memory_folder(Path("/a")) != memory_folder(Path("/b"))
