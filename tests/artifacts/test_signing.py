"""Who can write the folder of releases but has no key makes nothing that is used."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from failsoft.artifacts.manifest import MANIFEST_NAME, describe, read_manifest
from failsoft.artifacts.signing import KEY_VARIABLE
from failsoft.artifacts.store import ArtifactStore, Fill
from failsoft.errors import ConfigError, DamagedArtifactError, UntrustedArtifactError
from failsoft.health.clock import ManualClock
from failsoft.release.candidate import open_release

KEY = "k" * 32


def holding(said: str) -> Fill:
    def fill(folder: Path) -> None:
        (folder / "weights").write_text(said)

    return fill


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ArtifactStore:
    """Two signed releases, and the key is set."""
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    clock = ManualClock()
    made = ArtifactStore(tmp_path / "releases", clock, kind="release")
    for name in ("r-1", "r-2"):
        clock.advance(60.0)
        made.publish(name, holding(name), meta={})
    return made


def forge(folder: Path, *, kind: str = "release") -> None:
    """Weights of one's own, and a manifest that fits them in every digest."""
    (folder / "weights").write_text("poison")
    (folder / MANIFEST_NAME).unlink(missing_ok=True)
    manifest = describe(folder, kind=kind, created_at_s=1e9, meta={})
    (folder / MANIFEST_NAME).write_text(manifest.to_json())


def test_a_signed_release_is_used_and_its_signature_is_no_part_of_its_digest(store: ArtifactStore) -> None:
    newest = store.newest()
    assert newest is not None
    assert newest.name == "r-2"
    assert newest.manifest.signature.startswith("hmac-sha256:")
    body = json.loads((newest.path / MANIFEST_NAME).read_text())
    assert body["digest"] == newest.manifest.digest


def test_a_release_that_was_changed_with_all_its_digests_is_refused_and_the_one_before_is_used(
    store: ArtifactStore,
) -> None:
    forge(store.root / "r-2")
    with pytest.raises(UntrustedArtifactError, match="no signature"):
        store.open("r-2")
    newest = store.newest()
    assert newest is not None
    assert newest.name == "r-1"
    assert "no signature" in store.foreign()["r-2"], "it is shown, and not put aside: the key may be new"


def test_a_release_that_nobody_published_is_refused(store: ArtifactStore) -> None:
    (store.root / "r-3").mkdir()
    forge(store.root / "r-3")
    assert [artifact.name for artifact in store.listing()] == ["r-1", "r-2"]


def test_an_old_release_in_the_place_of_another_is_refused(store: ArtifactStore) -> None:
    shutil.rmtree(store.root / "r-2")
    shutil.copytree(store.root / "r-1", store.root / "r-2")
    with pytest.raises(UntrustedArtifactError, match="does not fit"):
        store.open("r-2")


def test_a_signature_of_another_key_is_refused(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "x" * 32)
    with pytest.raises(UntrustedArtifactError, match="does not fit"):
        store.open("r-1")


def test_without_a_key_nothing_is_asked_for_and_a_copy_keeps_its_signature(
    store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = store.open("r-1")
    monkeypatch.delenv(KEY_VARIABLE)
    copies = ArtifactStore(tmp_path / "copies", ManualClock(), kind="release")

    def copy(folder: Path) -> None:
        shutil.copytree(source.path, folder, dirs_exist_ok=True)

    copies.adopt("r-1", copy, source.manifest)
    unsigned = copies.publish("r-9", holding("x"), meta={})
    assert unsigned.manifest.signature == ""
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    assert copies.open("r-1").manifest.signature == source.manifest.signature
    with pytest.raises(UntrustedArtifactError):
        copies.open("r-9")


def test_checkpoints_are_not_signed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    store = ArtifactStore(tmp_path, ManualClock(), kind="checkpoint")
    assert store.publish("c", holding("x"), meta={}).manifest.signature == ""
    assert store.open("c").name == "c"


def test_a_forged_kind_opens_no_release_whoever_reads_it(store: ArtifactStore) -> None:
    """No other kind needs a signature, so whoever reads a release asks for one, and does not believe the manifest."""
    forge(store.root / "r-2", kind="checkpoint")
    assert read_manifest(store.root / "r-2").kind == "checkpoint"
    with pytest.raises(DamagedArtifactError, match="not a release"):
        open_release(store.root / "r-2")
    assert [artifact.name for artifact in store.listing()] == ["r-1"]
    newest = store.newest()
    assert newest is not None
    assert newest.name == "r-1"


def test_a_signature_or_a_name_that_is_no_text_takes_no_other_release_along(store: ArtifactStore) -> None:
    """Half of a surrogate pair is JSON, and a name of any bytes is one to the file system; neither has UTF-8."""
    path = store.root / "r-2" / MANIFEST_NAME
    path.write_text(json.dumps(json.loads(path.read_text()) | {"signature": "\ud800"}))
    shutil.copytree(store.root / "r-1", store.root / os.fsdecode(b"r-\xff"))
    assert [artifact.name for artifact in store.listing()] == ["r-1"]
    with pytest.raises(UntrustedArtifactError, match="does not fit"):
        store.open("r-2")


def test_a_key_that_is_none_is_refused_in_words(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "short")
    with pytest.raises(ConfigError, match="at least 32"):
        store.open("r-1")
