"""Damaged releases stay for a while and up to a size; then ``failsoft release gc`` frees them."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from failsoft.artifacts.asides import being_read
from failsoft.artifacts.store import ArtifactStore
from failsoft.errors import ConfigError
from failsoft.health.clock import ManualClock, SystemClock
from failsoft.release.leftovers import Leftover
from failsoft.release.set_aside import SetAsidePolicy, set_aside

DAY_S = 86_400.0


def fill(folder: Path) -> None:
    (folder / "weights").write_bytes(b"x" * 1_000_000)


@pytest.fixture
def releases(tmp_path: Path) -> Path:
    """Two that were put aside, of a megabyte each, and one that is whole."""
    store = ArtifactStore(tmp_path / "releases", ManualClock(), kind="release")
    for name in ("r-1", "r-2", "r-3"):
        store.publish(name, fill, meta={})
    for name in ("r-2", "r-3"):
        (store.root / name / "weights").write_bytes(b"y" * 1_000_000)
    newest = store.newest()  # puts the damaged ones aside on its way
    assert newest is not None
    assert newest.name == "r-1"
    return store.root


def going(releases: Path, *, days_later: float = 0.0, held: Collection[str] = (), **policy: float) -> list[Leftover]:
    now_s = SystemClock().wall_s() + days_later * DAY_S
    found = set_aside(releases, SetAsidePolicy(**policy), held=held, now_s=now_s)
    return [leftover for leftover in found if not leftover.kept]


def names(found: list[Leftover]) -> list[str]:
    return sorted(leftover.folder.name.rpartition("-")[0] for leftover in found)


def test_what_was_put_aside_lately_stays_and_goes_when_it_is_old(releases: Path) -> None:
    assert going(releases) == []
    assert going(releases, days_later=13.9) == []
    old = going(releases, days_later=15.0)
    assert names(old) == ["r-2", "r-3"]
    assert {leftover.what for leftover in old} == {"a damaged release, put aside 15 days ago"}
    assert all(leftover.remove() for leftover in old)
    assert list((releases / "quarantine").iterdir()) == []
    assert (releases / "r-1").is_dir()


@pytest.mark.parametrize("newest", ["r-2", "r-3"])
def test_of_many_the_newest_stay_that_fit_together(
    releases: Path, monkeypatch: pytest.MonkeyPatch, newest: str
) -> None:
    since_s = {True: 2.0, False: 1.0}
    monkeypatch.setattr("failsoft.release.set_aside._since_s", lambda folder: since_s[folder.name.startswith(newest)])
    policy = SetAsidePolicy(gigabytes=0.0015)
    found = set_aside(releases, policy, held=(), now_s=3.0)
    assert names([one for one in found if one.kept]) == [newest]


def test_what_fits_together_stays(releases: Path) -> None:
    assert len(going(releases, gigabytes=0.0015)) == 1
    assert len(going(releases, gigabytes=0.0)) == 2
    assert going(releases, gigabytes=0.003) == []


def test_a_clock_that_was_set_back_makes_nothing_old(releases: Path) -> None:
    assert going(releases, days_later=-400.0) == []


def test_what_the_plan_asks_for_or_somebody_pinned_stays_while_no_whole_one_has_its_name(releases: Path) -> None:
    assert names(going(releases, days_later=90.0, held={"r-3"})) == ["r-2"]
    (releases / "r-3").mkdir()
    assert names(going(releases, days_later=90.0, held={"r-3"})) == ["r-2", "r-3"]


def test_what_somebody_reads_just_now_stays(releases: Path) -> None:
    one, _ = old = going(releases, days_later=90.0)
    with being_read(one.folder):
        assert [leftover.remove() for leftover in old] == [False, True]
    assert one.remove()


def test_nothing_was_ever_put_aside(tmp_path: Path) -> None:
    assert going(tmp_path) == []


@pytest.mark.parametrize("policy", [{"days": -1.0}, {"gigabytes": float("nan")}])
def test_bounds_that_are_none_are_refused(policy: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="or more"):
        SetAsidePolicy(**policy)
