"""A bundle whose files are verified as they are asked for: what is read is whole, and what is not is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from failsoft.artifacts.bundle import Bundle, Role
from failsoft.artifacts.home import Home
from failsoft.artifacts.store import Artifact
from failsoft.errors import DamagedArtifactError
from failsoft.health.clock import SystemClock


def fill(folder: Path) -> None:
    (folder / "weights").write_bytes(b"large")
    (folder / "rules").write_text("small", "utf-8")
    (folder / Role.BASELINE).write_text("{}", "utf-8")
    (folder / Role.GBDT).mkdir()
    (folder / Role.GBDT / "one").write_text("a", "utf-8")
    (folder / "trees").mkdir()
    (folder / "trees" / "one").write_text("a", "utf-8")
    (folder / "trees" / "two").write_text("b", "utf-8")


@pytest.fixture
def artifact(tmp_path: Path) -> Artifact:
    releases = Home(root=tmp_path).releases(SystemClock())
    releases.publish("r1", fill, meta={})
    return releases.open("r1", unread=lambda _: True)


def test_a_part_is_verified_when_it_is_asked_for_and_no_other_is_read(artifact: Artifact) -> None:
    (artifact.path / "weights").write_bytes(b"wrong")
    bundle = Bundle.of(artifact, unread=True)
    assert bundle.file("rules").read_text("utf-8") == "small"
    assert bundle.file("trees").is_dir()
    with pytest.raises(DamagedArtifactError, match="weights has the right size, but its digest"):
        bundle.file("weights")


@pytest.mark.parametrize("spoil", ["changed", "removed", "added"])
def test_a_folder_is_verified_whole(artifact: Artifact, spoil: str) -> None:
    bundle = Bundle.of(artifact, unread=True)
    if spoil == "changed":
        (artifact.path / "trees" / "two").write_text("c", "utf-8")
    elif spoil == "removed":
        (artifact.path / "trees" / "two").unlink()
    else:
        (artifact.path / "more").write_text("c", "utf-8")
    with pytest.raises(DamagedArtifactError):
        bundle.file("more" if spoil == "added" else "trees")


@pytest.mark.parametrize("role", [Role.BASELINE, Role.GBDT])
def test_a_part_that_was_published_and_is_gone_is_damage_and_not_a_release_without_it(
    artifact: Artifact, role: Role
) -> None:
    bundle = Bundle.of(artifact, unread=True)
    assert bundle.has(role)
    assert not bundle.has(Role.QUALITY)
    (artifact.path / role).rename(artifact.path.parent / "away")
    with pytest.raises(DamagedArtifactError, match=f"{role} is absent"):
        bundle.has(role)
