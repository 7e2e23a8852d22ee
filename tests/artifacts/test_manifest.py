"""A manifest binds every byte, and nothing in it leads outside its folder or crashes its reader."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from failsoft.artifacts.manifest import (
    MANIFEST_NAME,
    FileEntry,
    Manifest,
    describe,
    digest_bytes,
    digest_file,
    read_manifest,
    verify_files,
)
from failsoft.artifacts.store import ArtifactStore
from failsoft.errors import ArtifactError, ConfigError, DamagedArtifactError, IncompatibleArtifactError
from failsoft.health.clock import ManualClock

AGAIN = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def written(folder: Path, **meta: Any) -> Manifest:
    (folder / "deep").mkdir(parents=True, exist_ok=True)
    (folder / "a.bin").write_bytes(b"weights")
    (folder / "deep" / "b.txt").write_text("labels")
    manifest = describe(folder, kind="release", created_at_s=12.5, meta=meta)
    (folder / MANIFEST_NAME).write_text(manifest.to_json())
    return manifest


def forge(folder: Path, **changes: Any) -> None:
    """Change the body and give it a digest that fits, as someone with bad intent would."""
    body = json.loads((folder / MANIFEST_NAME).read_text()) | changes
    body.pop("digest")
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
    (folder / MANIFEST_NAME).write_text(json.dumps(body | {"digest": digest_bytes(canonical)}))


def test_what_was_described_reads_back_and_verifies(tmp_path: Path) -> None:
    manifest = written(tmp_path, step=7)
    assert read_manifest(tmp_path) == manifest
    assert dict(manifest.meta) == {"step": 7}
    assert sorted(manifest.files) == ["a.bin", "deep/b.txt"]
    verify_files(tmp_path, manifest)


def test_a_digest_is_of_the_bytes_however_they_are_read(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"x" * (9 * 1024 * 1024))
    assert digest_file(tmp_path / "big") == digest_bytes(b"x" * (9 * 1024 * 1024))


@AGAIN
@given(place=st.integers(0, 6), bit=st.integers(0, 7))
def test_any_flipped_bit_of_a_file_is_found(tmp_path: Path, place: int, bit: int) -> None:
    manifest = written(tmp_path)
    content = bytearray(b"weights")
    content[place] ^= 1 << bit
    (tmp_path / "a.bin").write_bytes(bytes(content))
    with pytest.raises(DamagedArtifactError, match=r"a\.bin"):
        verify_files(tmp_path, manifest)


@pytest.mark.parametrize("content", [b"", b"weight", b"weightsx"])
def test_a_file_of_another_size_is_found(tmp_path: Path, content: bytes) -> None:
    """T25: a file cut to 0 bytes was accepted elsewhere without a word."""
    manifest = written(tmp_path)
    (tmp_path / "a.bin").write_bytes(content)
    with pytest.raises(DamagedArtifactError, match="bytes, its manifest says 7"):
        verify_files(tmp_path, manifest)


def test_a_file_that_is_gone_is_found(tmp_path: Path) -> None:
    manifest = written(tmp_path)
    (tmp_path / "a.bin").unlink()
    with pytest.raises(DamagedArtifactError, match="can't be read"):
        verify_files(tmp_path, manifest)


@AGAIN
@given(cut=st.integers(0, 400))
def test_a_torn_manifest_is_damage_and_nothing_else(tmp_path: Path, cut: int) -> None:
    written(tmp_path)
    whole = (tmp_path / MANIFEST_NAME).read_bytes()
    (tmp_path / MANIFEST_NAME).write_bytes(whole[: min(cut, len(whole) - 1)])
    with pytest.raises(DamagedArtifactError):
        read_manifest(tmp_path)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@AGAIN
@given(field=st.sampled_from(["format", "kind", "created_at_s", "files", "meta"]), value=json_values)
def test_whatever_a_forged_manifest_says_its_reader_refuses_it_in_words_or_can_use_it(
    tmp_path: Path, field: str, value: object
) -> None:
    written(tmp_path)
    forge(tmp_path, **{field: value})
    try:
        manifest = read_manifest(tmp_path)
    except ArtifactError:
        return
    assert isinstance(manifest.created_at_s, float | int)
    assert manifest.created_at_s < float("inf")


@pytest.mark.parametrize("at_s", [1e300, -1e300, 2.6e11, 10**400, -1.0e11])
def test_a_time_that_no_calendar_shows_is_refused_when_it_is_read_and_ends_no_listing_later(
    tmp_path: Path, at_s: float
) -> None:
    written(tmp_path)
    forge(tmp_path, created_at_s=at_s)
    with pytest.raises(DamagedArtifactError, match="no time"):
        read_manifest(tmp_path)


@AGAIN
@given(content=st.binary(max_size=100))
def test_bytes_that_are_no_manifest_are_damage(tmp_path: Path, content: bytes) -> None:
    (tmp_path / MANIFEST_NAME).write_bytes(content)
    with pytest.raises(DamagedArtifactError):
        read_manifest(tmp_path)


def test_a_pipe_in_its_place_is_damage_and_keeps_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / MANIFEST_NAME)
    with pytest.raises(DamagedArtifactError, match="no file"):
        read_manifest(tmp_path)


def test_a_manifest_that_nobody_could_read_back_is_not_published(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path / "store", ManualClock(), kind="checkpoint")
    with pytest.raises(ConfigError, match="manifest of large would take 17"):
        store.publish("large", lambda folder: None, meta={"x": "y" * 17_000_000})
    assert list(store.root.iterdir()) == []
    store.publish("large", lambda folder: None, meta={"x": "y" * 16_000_000})
    assert store.open("large").name == "large"


def test_a_manifest_nested_without_end_is_damage(tmp_path: Path) -> None:
    (tmp_path / MANIFEST_NAME).write_bytes(b"[" * 200_000)
    with pytest.raises(DamagedArtifactError):
        read_manifest(tmp_path)


def test_a_size_without_end_is_damage(tmp_path: Path) -> None:
    written(tmp_path)
    forge(tmp_path, files={"a.bin": {"bytes": math.inf, "digest": "blake3:0"}})
    with pytest.raises(DamagedArtifactError):
        read_manifest(tmp_path)


def test_a_manifest_that_was_changed_is_found_by_its_own_digest(tmp_path: Path) -> None:
    written(tmp_path)
    path = tmp_path / MANIFEST_NAME
    path.write_text(path.read_text().replace("12.5", "13.5"))
    with pytest.raises(DamagedArtifactError, match="own digest"):
        read_manifest(tmp_path)


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "deep/../../x", "bad\x00name", "half\ud83d"])
def test_a_manifest_that_names_files_outside_its_folder_is_refused(tmp_path: Path, name: str) -> None:
    written(tmp_path)
    forge(tmp_path, files={name: {"bytes": 1, "digest": "blake3:0"}})
    with pytest.raises(DamagedArtifactError):
        read_manifest(tmp_path)


def test_a_link_that_leads_outside_the_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "release"
    written(folder)
    (tmp_path / "secret").write_bytes(b"weights")
    (folder / "a.bin").unlink()
    (folder / "a.bin").symlink_to(tmp_path / "secret")
    with pytest.raises(DamagedArtifactError, match="outside"):
        read_manifest(folder)


def test_a_newer_format_is_not_damage(tmp_path: Path) -> None:
    written(tmp_path)
    forge(tmp_path, format=2)
    with pytest.raises(IncompatibleArtifactError, match="reads 1"):
        read_manifest(tmp_path)


def test_equal_contents_have_equal_digests_and_others_do_not() -> None:
    def manifest(size: int) -> Manifest:
        files = {"a": FileEntry(size_bytes=size, digest="blake3:1")}
        return Manifest(kind="release", created_at_s=1.0, files=files, meta={"b": 1, "a": 2})

    assert manifest(1).digest == manifest(1).digest != manifest(2).digest


def test_reading_can_be_paused_after_each_small_piece_and_finds_the_same(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"x" * 1_200_000)
    (tmp_path / "empty").touch()
    manifest, beats = describe(tmp_path, kind="release", created_at_s=0.0, meta={}), list[int]()
    verify_files(tmp_path, manifest, lambda: beats.append(1))
    assert len(beats) == 3
    (tmp_path / "big").write_bytes(b"x" * 1_199_999 + b"y")
    with pytest.raises(DamagedArtifactError, match="digest"):
        verify_files(tmp_path, manifest, lambda: None)
