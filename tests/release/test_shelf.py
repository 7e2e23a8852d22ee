"""What serves, what it may go back to and what somebody pinned is never removed."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.artifacts.home import Home
from failsoft.artifacts.manifest import Manifest
from failsoft.artifacts.store import Artifact
from failsoft.errors import ConfigError, DamagedArtifactError
from failsoft.release.shelf import Pins, standings


def release(name: str, **meta: Any) -> Artifact:
    return Artifact(
        name=name, path=Path(name), manifest=Manifest(kind="release", created_at_s=0.0, files={}, meta=meta)
    )


RELEASES = [release(f"r-{n}", previous=f"r-{n - 1}" if n else None) for n in range(10)]


def kept(**given: Any) -> dict[str, tuple[str, ...]]:
    asked: dict[str, Any] = {"in_use": {}, "pins": {}, "keep_newest": 2} | given
    return {s.artifact.name: s.kept_for for s in standings(asked.pop("releases", RELEASES), **asked) if s.kept_for}


def test_the_newest_stay_and_the_others_go() -> None:
    assert sorted(kept()) == ["r-8", "r-9"]


def test_the_served_one_and_the_one_before_it_stay_however_old_they_are() -> None:
    found = kept(in_use={"r-3": "served"})
    assert found["r-3"] == ("served",)
    assert found["r-2"] == ("before r-3",)


def test_a_pin_says_why_it_stays() -> None:
    assert kept(pins={"r-0": "audit"})["r-0"] == ("pinned: audit",)


def test_the_whole_weights_of_a_narrow_release_that_stays_stay() -> None:
    narrow = release("r-1-int8", provenance={"variant_of": "r-1"})
    assert "r-1" in kept(releases=[*RELEASES, narrow])


def test_names_that_are_no_longer_there_hold_nothing() -> None:
    assert "gone" not in kept(in_use={"gone": "served"}, pins={"gone": "audit"})


@pytest.mark.parametrize("keep_newest", [1, 0, -1])
def test_one_to_go_back_to_always_stays(keep_newest: int) -> None:
    with pytest.raises(ConfigError, match="at least 2"):
        kept(keep_newest=keep_newest)


@given(st.sets(st.integers(0, 9)), st.sets(st.integers(0, 9)), st.integers(2, 12))
def test_whatever_is_in_use_or_pinned_stays_with_what_came_before(
    used: set[int], pinned: set[int], newest: int
) -> None:
    found = kept(in_use={f"r-{n}": "served" for n in used}, pins={f"r-{n}": "x" for n in pinned}, keep_newest=newest)
    must = used | pinned | {n - 1 for n in used if n} | set(range(max(0, 10 - newest), 10))
    assert {int(name[2:]) for name in found} == must


def test_pins_are_remembered_changed_and_taken_back(tmp_path: Path) -> None:
    pins = Pins(Home.find(tmp_path))
    pins.pin("r-1", "audit")
    pins.pin("r-1", "audit of 2026")
    assert Pins(Home.find(tmp_path)).all() == {"r-1": "audit of 2026"}
    pins.unpin("r-1")
    assert pins.all() == {}
    with pytest.raises(ConfigError, match="not pinned"):
        pins.unpin("r-1")


def test_of_many_pins_at_once_none_is_lost(tmp_path: Path) -> None:
    home = Home.find(tmp_path)
    threads = [threading.Thread(target=Pins(home).pin, args=(f"r-{number}", "audit")) for number in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(Pins(home).all()) == 24


@pytest.mark.parametrize("content", ["{", "[]", "3"])
def test_pins_that_can_t_be_read_are_not_no_pins(tmp_path: Path, content: str) -> None:
    (tmp_path / "pins.json").write_text(content)
    with pytest.raises(DamagedArtifactError, match=r"pins\.json"):
        Pins(Home.find(tmp_path)).all()
