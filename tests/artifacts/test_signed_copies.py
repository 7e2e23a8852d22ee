"""A copy on a remote store is believed no more than a folder here: what must be signed is, by its maker, or unused."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from failsoft.artifacts import resign
from failsoft.artifacts.at_hand import Sought, at_hand
from failsoft.artifacts.manifest import MANIFEST_NAME, Manifest, describe, read_manifest
from failsoft.artifacts.remote_place import place_of
from failsoft.artifacts.remote_store import RemoteStore
from failsoft.artifacts.resign import sign_again
from failsoft.artifacts.signing import ACCEPTED_VARIABLE, KEY_VARIABLE
from failsoft.artifacts.store import ArtifactStore
from failsoft.errors import ArtifactError, DamagedArtifactError, UntrustedArtifactError
from failsoft.health.clock import ManualClock
from failsoft.release.candidate import open_release

OLD, NEW = "o" * 32, "n" * 32


class Machines:
    """One that makes releases, one that fetches them, and the store between them."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.made, self.here = (ArtifactStore(folder / name, self.clock, kind="release") for name in ("made", "here"))
        self.address = f"file://{folder}/there"

    def remote(self) -> RemoteStore:
        return RemoteStore(place_of(self.address), kind="release")

    def publish(self, name: str) -> None:
        self.clock.advance(60.0)

        def fill(folder: Path) -> None:
            (folder / "weights").write_text(name)

        self.made.publish(name, fill, meta={})

    def send(self, name: str) -> None:
        self.remote().put(self.made.open(name))


@pytest.fixture
def machines(tmp_path: Path) -> Machines:
    return Machines(tmp_path)


def test_an_unsigned_release_on_the_remote_store_is_not_signed_by_whoever_fetches_it(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines.publish("r-1")
    machines.send("r-1")
    monkeypatch.setenv(KEY_VARIABLE, NEW)
    with pytest.raises(ArtifactError, match="no signature"):
        at_hand(machines.here, Sought(), machines.remote())
    assert not list(machines.here.root.iterdir())


@pytest.mark.parametrize("given", ["", OLD])
def test_a_release_that_no_accepted_key_signed_is_passed_over_for_the_one_before_and_said(
    machines: Machines, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, NEW)
    machines.publish("r-1")
    machines.send("r-1")
    monkeypatch.setenv(KEY_VARIABLE, given)
    machines.publish("r-2")
    machines.send("r-2")
    monkeypatch.setenv(KEY_VARIABLE, NEW)
    found = at_hand(machines.here, Sought(), machines.remote())
    assert found is not None
    assert found.artifact.name == "r-1"
    assert [remark.partition(" ")[0] for remark in found.remarks] == ["r-2"]
    assert [one.name for one in machines.here.listing()] == ["r-1"]


def test_a_copy_is_refused_before_any_of_it_is_brought(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    machines.publish("r-1")
    unsigned = machines.made.open("r-1").manifest
    monkeypatch.setenv(KEY_VARIABLE, NEW)
    with pytest.raises(UntrustedArtifactError):
        machines.here.adopt("r-1", lambda _: pytest.fail("it was brought"), unsigned)


def test_after_a_change_of_keys_sending_a_release_again_renews_the_signature_of_its_copy(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, OLD)
    machines.publish("r-1")
    machines.send("r-1")
    monkeypatch.setenv(KEY_VARIABLE, NEW)
    monkeypatch.setenv(ACCEPTED_VARIABLE, OLD)
    assert sign_again(machines.made, "r-1")
    machines.send("r-1")
    monkeypatch.delenv(ACCEPTED_VARIABLE)
    found = at_hand(machines.here, Sought(), machines.remote())
    assert found is not None
    assert found.artifact.manifest == machines.made.open("r-1").manifest


def test_a_link_puts_no_release_in_the_place_of_another(
    machines: Machines, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, NEW)
    for name in ("r-1", "r-2"):
        machines.publish(name)
    root = machines.made.root
    (root / "r-1").rename(tmp_path / "r-1")
    shutil.rmtree(root / "r-2")
    for name in ("r-1", "r-2"):
        (root / name).symlink_to(tmp_path / "r-1")
    with pytest.raises(UntrustedArtifactError, match="does not fit"):
        machines.made.open("r-2")
    assert machines.made.open("r-1").name == "r-1", "moved to another disk, say"
    assert open_release(root / "r-2").name == "r-1", "whoever names a folder is told which release it is"


def test_a_link_to_a_folder_is_as_little_part_of_a_release_as_a_file_that_came_later(
    machines: Machines, tmp_path: Path
) -> None:
    machines.publish("r-1")
    (tmp_path / "poison").mkdir()
    (machines.made.root / "r-1" / "templates").symlink_to(tmp_path / "poison")
    with pytest.raises(DamagedArtifactError, match="added after publishing"):
        machines.made.open("r-1")


def test_what_is_signed_anew_is_what_was_judged_whoever_swaps_it_meanwhile(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, OLD)
    machines.publish("r-1")
    monkeypatch.setenv(KEY_VARIABLE, NEW)
    monkeypatch.setenv(ACCEPTED_VARIABLE, OLD)

    def swapped(folder: Path, *, kind: str) -> Manifest:
        judged = read_manifest(folder, kind=kind)
        (folder / "weights").write_text("a stranger's")
        (folder / MANIFEST_NAME).unlink()
        others = replace(describe(folder, kind=kind, created_at_s=1.0, meta={}), signature="")
        (folder / MANIFEST_NAME).write_text(others.to_json())
        return judged

    monkeypatch.setattr(resign, "read_manifest", swapped)
    with pytest.raises(DamagedArtifactError):
        sign_again(machines.made, "r-1")
    monkeypatch.undo()
    monkeypatch.setenv(KEY_VARIABLE, NEW)
    with pytest.raises(ArtifactError):
        machines.made.open("r-1")
