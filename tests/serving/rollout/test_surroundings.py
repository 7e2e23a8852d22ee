"""What the rollout asks of a home folder."""

from __future__ import annotations

from pathlib import Path

from failsoft.artifacts.bundle import Baseline, Role, write_json
from failsoft.artifacts.home import Home
from failsoft.health.clock import ManualClock
from failsoft.serving.rollout.surroundings import HomeSurroundings


def fill(folder: Path) -> None:
    baseline = Baseline(
        samples=200,
        weak_fraction=0.03,
        entropy_mean=0.1,
        entropy_std=0.05,
        logit_std=2.0,
        oov_fraction=0.0,
        label_mix={},
    )
    write_json(folder, Role.BASELINE, baseline)
    (folder / Role.WEIGHTS).write_bytes(b"many bytes")


def test_the_healthy_rate_comes_from_a_published_release_without_reading_its_weights(tmp_path: Path) -> None:
    home, clock = Home.find(tmp_path), ManualClock()
    home.releases(clock).publish("r1", fill, meta={})
    (home.releases(clock).root / "r1" / Role.WEIGHTS).unlink()
    assert HomeSurroundings(home, clock, lambda _plan: None).healthy_bad_fraction("r1") == 0.03


def test_a_baseline_that_was_changed_is_unknown_until_it_is_whole_again(tmp_path: Path) -> None:
    home, clock = Home.find(tmp_path), ManualClock()
    path = home.releases(clock).publish("r1", fill, meta={}).path / Role.BASELINE
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"0.03", b"0.93"))
    around = HomeSurroundings(home, clock, lambda _plan: None)
    assert around.healthy_bad_fraction("r1") is None
    path.write_bytes(whole)
    clock.advance(60.0)
    assert around.healthy_bad_fraction("r1") == 0.03
