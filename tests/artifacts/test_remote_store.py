"""On a store without rename, what counts is whole, whatever fails, tears or dies in between."""

from __future__ import annotations

from pathlib import Path

import fsspec
import pytest
from pyarrow import fs

from failsoft.artifacts.remote_place import Place
from failsoft.artifacts.remote_store import RemoteArtifact, RemoteStore, folder_name
from failsoft.artifacts.store import Artifact, ArtifactStore
from failsoft.errors import DamagedArtifactError
from failsoft.health.clock import ManualClock
from tests.artifacts.odd_files import Dies, Disk, OddFiles

BIG = b"0123456789" * 1000


def fill(folder: Path) -> None:
    (folder / "weights").write_bytes(BIG)
    (folder / "deep").mkdir()
    (folder / "deep" / "words").write_bytes(b"{}")


class Here:
    """A local store with a hand-set clock."""

    def __init__(self, root: Path) -> None:
        self.clock = ManualClock()
        self.store = ArtifactStore(root, self.clock, kind="checkpoint")

    def publish(self, name: str) -> Artifact:
        self.clock.advance(1.0)
        return self.store.publish(name, fill, meta={"healthy": True})


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path / "here")


def in_memory(_: Path) -> Place:
    filesystem = fsspec.filesystem("memory")
    filesystem.store.clear()
    filesystem.pseudo_dirs[:] = [""]
    return Place(filesystem=fs.PyFileSystem(fs.FSSpecHandler(filesystem)), root="/b/run", shown="memory://b/run")


def on_disk(folder: Path) -> Place:
    return Place(filesystem=fs.LocalFileSystem(), root=str(folder / "there"), shown=f"file://{folder}/there")


def in_a_part_of_a_disk(folder: Path) -> Place:
    return Place(filesystem=fs.SubTreeFileSystem(str(folder), fs.LocalFileSystem()), root="there", shown="sub://there")


def object_store(_: Path) -> Place:
    return Disk().place()


PLACES = [in_memory, on_disk, in_a_part_of_a_disk, object_store]


@pytest.mark.parametrize("make", PLACES)
def test_what_was_put_there_is_listed_verified_and_comes_back_whole(make: object, here: Here, tmp_path: Path) -> None:
    assert callable(make)
    remote = RemoteStore(make(tmp_path), kind="checkpoint")
    assert remote.shelf().there == ()
    first, second = here.publish("a"), here.publish("b")
    assert [remote.put(first), remote.put(second)] == [
        folder_name("a", first.manifest),
        folder_name("b", second.manifest),
    ]
    again = RemoteStore(make(tmp_path) if make in {on_disk, in_a_part_of_a_disk} else remote.place, kind="checkpoint")
    assert [(one.name, one.damage, again.verify(one)) for one in again.shelf().there] == [
        ("a", None, None),
        ("b", None, None),
    ]
    other = ArtifactStore(tmp_path / "other", ManualClock(), kind="checkpoint")
    found = again.shelf().there[-1]
    adopted = other.adopt("b", lambda aside: again.fetch(found, aside), found.manifest)
    assert adopted.manifest == second.manifest
    assert (other.open("b").path / "weights").read_bytes() == BIG


@pytest.mark.parametrize("make", PLACES)
def test_what_is_removed_is_gone_and_the_rest_stays(make: object, here: Here, tmp_path: Path) -> None:
    assert callable(make)
    remote = RemoteStore(make(tmp_path), kind="checkpoint")
    first = remote.put(here.publish("a"))
    remote.put(here.publish("b"))
    remote.remove(first)
    remote.remove(first)
    shelf = remote.shelf()
    assert ([one.name for one in shelf.there], shelf.unfinished) == (["b"], ())


def test_putting_twice_writes_once(here: Here) -> None:
    disk = Disk()
    artifact = here.publish("a")
    RemoteStore(disk.place(), kind="checkpoint").put(artifact)
    before = dict(disk.files)
    kinds: list[str] = []
    RemoteStore(disk.place(lambda _n, kind, _p: kinds.append(kind)), kind="checkpoint").put(artifact)
    assert disk.files == before
    assert "create" not in kinds


def whole(disk: Disk, names: set[str]) -> list[str]:
    """Names of what a later reader sees; each byte of it is as it was published."""
    later = RemoteStore(disk.place(), kind="checkpoint")
    there = [one for one in later.shelf().there if one.damage is None]
    assert all(later.verify(one) is None for one in there)
    assert {one.name for one in there} <= names
    return [one.name for one in there]


@pytest.mark.parametrize("atomic", [True, False])
def test_a_kill_at_any_operation_of_a_copy_leaves_the_old_one_and_the_new_one_whole_or_unseen(
    here: Here, atomic: bool
) -> None:
    first, second = here.publish("a"), here.publish("b")
    for at in range(1, 200):
        disk, dies = Disk(), Dies(at)
        RemoteStore(disk.place(atomic=atomic), kind="checkpoint").put(first)
        try:
            RemoteStore(disk.place(dies, atomic=atomic), kind="checkpoint").put(second)
        except OSError:
            assert whole(disk, {"a", "b"})[0] == "a"
            RemoteStore(disk.place(atomic=atomic), kind="checkpoint").put(second)  # a later try mends it
        assert whole(disk, {"a", "b"}) == ["a", "b"]
        if dies.seen < at:
            break
    else:
        pytest.fail("the copy never ended")
    assert at > 10


@pytest.mark.parametrize("atomic", [True, False])
def test_a_kill_at_any_operation_of_a_removal_leaves_nothing_that_looks_whole_and_is_not(
    here: Here, atomic: bool
) -> None:
    first, second = here.publish("a"), here.publish("b")
    for at in range(1, 50):
        disk, dies = Disk(), Dies(at)
        remote = RemoteStore(disk.place(atomic=atomic), kind="checkpoint")
        folder = remote.put(first)
        remote.put(second)
        try:
            RemoteStore(disk.place(dies, atomic=atomic), kind="checkpoint").remove(folder)
        except OSError:
            assert whole(disk, {"a", "b"})[-1] == "b"
            continue
        assert whole(disk, {"b"}) == ["b"]
        return
    pytest.fail("the removal never ended")


def test_a_store_that_keeps_less_than_it_took_is_found_out_before_the_manifest(here: Here) -> None:
    disk = Disk()
    place = disk.place()
    handler = place.filesystem.handler
    assert isinstance(handler, OddFiles)

    def forgetful(_number: int, kind: str, path: str) -> None:
        if kind == "open" and path.endswith("weights"):
            disk.files[path] = BIG[:-1]

    handler.plan = forgetful
    with pytest.raises(DamagedArtifactError, match="9999 bytes"):
        RemoteStore(place, kind="checkpoint").put(here.publish("a"))
    assert whole(disk, set()) == []
    assert disk.files == {}


def test_local_files_that_rotted_are_not_copied(here: Here) -> None:
    artifact = here.publish("a")
    (artifact.path / "weights").write_bytes(BIG[:-1] + b"x")
    disk = Disk()
    with pytest.raises(DamagedArtifactError, match="not what its manifest says"):
        RemoteStore(disk.place(), kind="checkpoint").put(artifact)
    assert disk.files == {}


def test_pruning_the_local_one_while_it_is_copied_takes_nothing_away(here: Here) -> None:
    artifact, disk = here.publish("a"), Disk()

    def pruned(_number: int, kind: str, _path: str) -> None:
        if kind == "create":
            here.store.remove("a")

    RemoteStore(disk.place(pruned), kind="checkpoint").put(artifact)
    assert whole(disk, {"a"}) == ["a"]


def remote_one(here: Here, disk: Disk) -> tuple[RemoteStore, RemoteArtifact]:
    remote = RemoteStore(disk.place(), kind="checkpoint")
    remote.put(here.publish("a"))
    return remote, remote.shelf().there[0]


def test_flipped_bits_are_found_when_it_is_fetched_and_a_mark_keeps_it_from_being_fetched_again(
    here: Here, tmp_path: Path
) -> None:
    disk = Disk()
    remote, found = remote_one(here, disk)
    path = f"root/run/{found.folder}/weights"
    disk.files[path] = b"x" + BIG[1:]
    (tmp_path / "aside").mkdir()
    with pytest.raises(DamagedArtifactError, match="not those of its manifest"):
        remote.fetch(found, tmp_path / "aside")
    assert remote.verify(found) is not None
    remote.mark_damaged(found.folder, "its bits flipped")
    assert [one.damage for one in RemoteStore(disk.place(), kind="checkpoint").shelf().there] == ["marked as damaged"]


def test_a_file_of_another_size_or_none_is_damage_without_reading_it(here: Here) -> None:
    disk = Disk()
    remote, found = remote_one(here, disk)
    del disk.files[f"root/run/{found.folder}/deep/words"]
    (one,) = remote.shelf().there
    assert one.damage == "deep/words has no bytes, its manifest says 2"


def test_a_torn_or_renamed_manifest_makes_a_folder_count_as_unfinished(here: Here) -> None:
    disk = Disk()
    _, found = remote_one(here, disk)
    manifest = f"root/run/{found.folder}/manifest.json"
    disk.files[manifest] = disk.files[manifest][:-5]
    shelf = RemoteStore(disk.place(), kind="checkpoint").shelf()
    assert (shelf.there, shelf.unfinished) == ((), (found.folder,))


def test_a_manifest_larger_than_any_is_not_read_into_memory(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk()
    _, found = remote_one(here, disk)
    whole_bytes = len(disk.files[f"root/run/{found.folder}/manifest.json"])
    monkeypatch.setattr("failsoft.artifacts.remote_assembly.MAX_MANIFEST_BYTES", whole_bytes)
    assert len(RemoteStore(disk.place(), kind="checkpoint").shelf().there) == 1
    disk.files[f"root/run/{found.folder}/manifest.json"] = b" " + disk.files[f"root/run/{found.folder}/manifest.json"]
    shelf = RemoteStore(disk.place(), kind="checkpoint").shelf()
    assert (shelf.there, shelf.unfinished) == ((), (found.folder,))


def test_a_file_that_grew_on_the_store_fills_no_disk_here(here: Here, tmp_path: Path) -> None:
    disk = Disk()
    remote, found = remote_one(here, disk)
    (tmp_path / "aside").mkdir()
    disk.files[f"root/run/{found.folder}/weights"] = b"x" * (len(BIG) + 40 * 1024 * 1024)
    with pytest.raises(DamagedArtifactError, match="more bytes than its manifest"):
        remote.fetch(found, tmp_path / "aside")
    assert (tmp_path / "aside" / "weights").stat().st_size <= len(BIG) + 4 * 1024 * 1024


def test_a_newer_format_is_foreign_and_neither_damaged_nor_unfinished(here: Here) -> None:
    disk = Disk()
    _, found = remote_one(here, disk)
    manifest = f"root/run/{found.folder}/manifest.json"
    disk.files[manifest] = disk.files[manifest].replace(b'"format": 1', b'"format": 9')
    shelf = RemoteStore(disk.place(), kind="checkpoint").shelf()
    assert (shelf.there, shelf.unfinished) == ((), ())
    assert "use the failsoft that wrote it" in shelf.foreign[found.folder]


def test_a_manifest_that_names_files_outside_is_not_followed(here: Here, tmp_path: Path) -> None:
    disk = Disk()
    remote, found = remote_one(here, disk)
    outside = RemoteArtifact(
        folder=found.folder,
        manifest=type(found.manifest)(
            kind="checkpoint", created_at_s=1.0, files={"../../evil": found.manifest.files["weights"]}, meta={}
        ),
    )
    with pytest.raises(DamagedArtifactError, match="outside the folder"):
        remote.fetch(outside, tmp_path)
