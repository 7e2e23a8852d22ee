"""The end of a job, seen from its supervisor: tried again, and not while storage is away."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from failsoft.artifacts.home import Home
from failsoft.errors import DriverLostError, StorageAwayError
from failsoft.health.backoff import BackoffPolicy
from failsoft.health.clock import ManualClock
from failsoft.training.checkpoints.driver_lock import sole_driver
from failsoft.training.survival.room import NodeRoom
from train_jobs.config import JobConfig
from train_jobs.result import JobResult
from train_jobs.storage import StoragePolicy
from train_jobs.supervised import carry_through

RESULT = cast(JobResult, object())


class Clock(ManualClock):
    """Tells of each time that passes."""

    then: Callable[[], None] = staticmethod(lambda: None)

    def sleep_s(self, duration_s: float) -> None:
        super().sleep_s(duration_s)
        self.then()


class Driver:
    """Of a run that has consumed all its batches; its storage goes when the end is tried first."""

    def __init__(self, home: Path, clock: Clock, *, away_until_s: float) -> None:
        self.home, self.clock, self.away_until_s = home, clock, away_until_s
        self.aside, self.tries = home.with_name("aside"), 0
        clock.then = self.come_back

    def come_back(self) -> None:
        if self.aside.exists() and self.clock.monotonic_s() >= self.away_until_s:
            self.home.unlink()
            self.aside.rename(self.home)

    def start(self) -> None:
        raise NotImplementedError

    def excluded(self) -> frozenset[str]:
        raise NotImplementedError

    def rooms(self) -> tuple[NodeRoom, ...] | None:
        raise NotImplementedError

    def wish(self, workers: int, excluded: frozenset[str]) -> None:
        raise NotImplementedError

    def attempt(self, workers: int, excluded: frozenset[str]) -> str | None:
        raise NotImplementedError

    def finish(self) -> JobResult:
        self.tries += 1
        if self.tries == 1:
            self.home.rename(self.aside)
            self.home.touch()
        if self.aside.exists():
            raise DriverLostError("evaluation and release failed of what the run stands on: Stale file handle")
        return RESULT


def ended(root: Path, *, away_until_s: float) -> tuple[JobResult, Driver]:
    home, clock = root / "home", Clock()
    config = JobConfig(
        home=home,
        run="r",
        backoff=BackoffPolicy(jitter_fraction=0.0),
        storage=StoragePolicy(patience_s=600.0),
    )
    driver = Driver(home, clock, away_until_s=away_until_s)
    with sole_driver(Home(root=home).run("r")):
        (Home(root=home).run("r") / "prepared").mkdir()
        store = Home(root=home).checkpoints("r", clock)
        meta = {"position": 30, "step": 30, "healthy": True}
        store.publish("last", lambda folder: folder.joinpath("x").touch(), meta=meta)
        return carry_through(config, driver, clock=clock), driver


@pytest.fixture(autouse=True)
def thirty_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("train_jobs.supervised.planned", lambda _config, _clock: 30)


def test_storage_that_goes_during_evaluation_is_waited_for_and_spends_one_try(tmp_path: Path) -> None:
    result, driver = ended(tmp_path, away_until_s=400.0)
    assert result is RESULT
    assert driver.tries == 2
    assert 400.0 <= driver.clock.monotonic_s() < 600.0


def test_storage_that_stays_away_before_the_release_is_said(tmp_path: Path) -> None:
    with pytest.raises(StorageAwayError, match="then start the same command again"):
        ended(tmp_path, away_until_s=float("inf"))
