"""An artifact is at hand before anything starts: what is whole and newest, here or from a remote store."""

from __future__ import annotations

from pathlib import Path

import pytest

from failsoft.artifacts.at_hand import Found, Sought, at_hand
from failsoft.artifacts.remote_place import place_of
from failsoft.artifacts.remote_store import RemoteStore
from failsoft.artifacts.store import ArtifactStore
from failsoft.errors import ArtifactError, DamagedArtifactError
from failsoft.health.clock import ManualClock

BY_POSITION = Sought(order=lambda manifest: float(manifest.meta["position"]), accept=lambda one: one.meta["healthy"])


@pytest.fixture
def here(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(tmp_path / "here", ManualClock(), kind="checkpoint")


@pytest.fixture
def remote(tmp_path: Path) -> RemoteStore:
    return RemoteStore(place_of(f"file://{tmp_path}/there"), kind="checkpoint")


def publish(store: ArtifactStore, position: int, *, healthy: bool = True) -> None:
    def write(folder: Path) -> None:
        (folder / "weights").write_bytes(bytes([position]) * 100)

    store.publish(f"p{position}", write, meta={"position": position, "healthy": healthy})


def send(tmp_path: Path, remote: RemoteStore, *positions: int, healthy: bool = True) -> None:
    elsewhere = ArtifactStore(tmp_path / "elsewhere", ManualClock(), kind="checkpoint")
    for position in positions:
        publish(elsewhere, position, healthy=healthy)
        remote.put(elsewhere.open(f"p{position}"))


def damage(root: Path, name: str) -> None:
    (found,) = root.glob(f"{name}*/weights")
    found.write_bytes(b"x" * 100)  # of the same size: only its digest tells


def said(found: Found | None) -> tuple[str, bool]:
    assert found is not None
    return found.artifact.name, found.brought


def test_an_empty_machine_gets_the_newest_one(here: ArtifactStore, remote: RemoteStore, tmp_path: Path) -> None:
    send(tmp_path, remote, 8, 16)
    assert said(at_hand(here, BY_POSITION, remote)) == ("p16", True)
    assert here.open("p16").path.is_dir()


def test_what_is_here_and_as_new_stays_and_nothing_is_fetched(
    here: ArtifactStore, remote: RemoteStore, tmp_path: Path
) -> None:
    send(tmp_path, remote, 8, 16)
    publish(here, 24)
    assert said(at_hand(here, BY_POSITION, remote)) == ("p24", False)
    assert [one.name for one in here.listing()] == ["p24"]


def test_a_damaged_one_here_is_put_aside_and_fetched_again(
    here: ArtifactStore, remote: RemoteStore, tmp_path: Path
) -> None:
    send(tmp_path, remote, 16)
    publish(here, 16)
    damage(here.root, "p16")
    found = at_hand(here, BY_POSITION, remote)
    assert said(found) == ("p16", True)
    assert found is not None
    assert "put aside" in found.remarks[0]


def test_one_that_arrives_damaged_is_passed_over_for_the_one_before(
    here: ArtifactStore, remote: RemoteStore, tmp_path: Path
) -> None:
    send(tmp_path, remote, 8, 16)
    damage(tmp_path / "there", "p16")
    found = at_hand(here, BY_POSITION, remote)
    assert said(found) == ("p8", True)
    assert [one.name for one in here.listing()] == ["p8"]


def test_only_damaged_ones_are_an_error_and_no_first_start(
    here: ArtifactStore, remote: RemoteStore, tmp_path: Path
) -> None:
    send(tmp_path, remote, 16)
    damage(tmp_path / "there", "p16")
    with pytest.raises(DamagedArtifactError, match="p16"):
        at_hand(here, BY_POSITION, remote)


def test_an_unhealthy_one_is_not_wanted(here: ArtifactStore, remote: RemoteStore, tmp_path: Path) -> None:
    send(tmp_path, remote, 16, healthy=False)
    publish(here, 8)
    assert said(at_hand(here, BY_POSITION, remote)) == ("p8", False)


def test_nothing_anywhere_is_none(here: ArtifactStore, remote: RemoteStore) -> None:
    assert at_hand(here, BY_POSITION, remote) is None
    assert at_hand(here, BY_POSITION) is None


def test_a_store_that_is_away_stops_only_who_has_nothing(here: ArtifactStore, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("a file where the folder should be", "utf-8")
    away = RemoteStore(place_of(f"file://{tmp_path}/there"), kind="checkpoint")
    with pytest.raises(ArtifactError, match="credentials"):
        at_hand(here, BY_POSITION, away)
    publish(here, 8)
    found = at_hand(here, BY_POSITION, away)
    assert said(found) == ("p8", False)
    assert found is not None
    assert "must do" in found.remarks[0]


def test_one_by_name_is_that_one_though_a_newer_one_is_there(
    here: ArtifactStore, remote: RemoteStore, tmp_path: Path
) -> None:
    send(tmp_path, remote, 8, 16)
    assert said(at_hand(here, Sought(name="p8"), remote)) == ("p8", True)
    assert said(at_hand(here, Sought(name="p8"), remote)) == ("p8", False)
    damage(here.root, "p8")
    assert said(at_hand(here, Sought(name="p8"), remote)) == ("p8", True)


def test_of_two_machines_that_fetch_at_once_the_second_takes_the_firsts_copy(
    here: ArtifactStore, remote: RemoteStore, tmp_path: Path
) -> None:
    send(tmp_path, remote, 16)

    class Slower(RemoteStore):
        def fetch(self, found: object, into: Path, **more: object) -> None:
            del found, into, more
            at_hand(here, BY_POSITION, remote)  # the other one, meanwhile
            elsewhere = tmp_path / "elsewhere" / "p16" / "weights"
            (next(here.root.glob(".*")) / "weights").write_bytes(elsewhere.read_bytes())

    slower = Slower(place_of(f"file://{tmp_path}/there"), kind="checkpoint")
    assert said(at_hand(here, BY_POSITION, slower)) == ("p16", True)
