"""What a failed or killed publication leaves behind, and what of it goes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from failsoft.artifacts.asides import being_filled
from failsoft.artifacts.bundle import Role
from failsoft.artifacts.home import Home
from failsoft.errors import ConfigError
from failsoft.release.leftovers import PROVENANCE, Leftover, clear_halves, leftovers


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home.find(tmp_path)


def candidate(home: Home, number: int, *, whole: bool = True, contents: str | None = None) -> Path:
    folder = home.candidates / f"c-{number}"
    folder.mkdir(parents=True)
    (folder / Role.CODEC).write_text("{}")
    if whole:
        (folder / PROVENANCE).write_text("{}")
        os.utime(folder / PROVENANCE, (number, number))
    if contents is not None:
        (folder / Role.GATE_REPORT).write_text(json.dumps({"facts": {"contents": contents}}))
    return folder


def found(home: Home, keep: int = 0) -> list[Leftover]:
    return leftovers(home, releases=home.root / "releases", keep_newest=keep)


def test_the_newest_candidates_that_failed_stay_and_older_ones_go(home: Home) -> None:
    folders = [candidate(home, number, contents=f"blake3:{number}") for number in range(4)]
    assert [leftover.folder for leftover in found(home, keep=3) if leftover.remove()] == folders[:1]
    assert sorted(home.candidates.iterdir()) == folders[1:]
    assert {leftover.what for leftover in found(home)} == {"a candidate that failed its gates"}


def test_half_a_candidate_goes_and_one_that_is_being_filled_stays(home: Home) -> None:
    half = candidate(home, 1, whole=False)
    with being_filled(home.candidates / "c-2"):
        clear_halves(home, releases=home.root / "releases")
        assert not half.exists()
        assert (home.candidates / "c-2").is_dir()
        assert found(home) == []


def test_whole_candidates_outlive_the_next_publication_whatever_their_number(home: Home) -> None:
    folders = [candidate(home, number) for number in range(20)]
    clear_halves(home, releases=home.root / "releases")
    assert sorted(home.candidates.iterdir()) == sorted(folders)
    assert {leftover.what for leftover in found(home)} == {"a candidate that was not judged to the end"}


def test_a_candidate_whose_process_died_after_publishing_goes(home: Home) -> None:
    candidate(home, 1, contents="blake3:same")
    release = home.root / "releases" / "r-1"
    release.mkdir(parents=True)
    (release / Role.GATE_REPORT).write_text(json.dumps({"facts": {"contents": "blake3:same"}}))
    (only,) = found(home, keep=5)
    assert only.what == "a candidate that was published"
    assert only.remove()
    assert release.is_dir()


def test_hidden_folders_among_the_releases_go_and_published_ones_never(home: Home) -> None:
    for name in (".aside-r-1-0123", "r-1", "quarantine"):
        (home.root / "releases" / name).mkdir(parents=True)
    assert [leftover.folder.name for leftover in found(home) if leftover.remove()] == [".aside-r-1-0123"]
    assert sorted(path.name for path in (home.root / "releases").iterdir()) == ["quarantine", "r-1"]


@pytest.mark.parametrize("report", ["", "[]", "{}", '{"facts": 3}'])
def test_a_report_that_can_t_be_read_makes_nobody_published(home: Home, report: str) -> None:
    folder = candidate(home, 1)
    (folder / Role.GATE_REPORT).write_text(report)
    release = home.root / "releases" / "r-1"
    release.mkdir(parents=True)
    (release / Role.GATE_REPORT).write_text(report)
    assert [leftover.kept for leftover in found(home, keep=1)] == [True]


def test_a_home_where_nothing_was_made_has_no_leftovers(home: Home) -> None:
    assert found(home) == []
    with pytest.raises(ConfigError, match="keep 0 candidates or more"):
        found(home, keep=-1)
