"""A remote store that can't be used is refused before any worker starts; a run that is under way goes on without."""

from __future__ import annotations

from pathlib import Path

import pytest

from failsoft.artifacts.home import Home
from failsoft.artifacts.remote_place import Place
from failsoft.errors import ConfigError
from failsoft.health.clock import ManualClock
from failsoft.health.ledger import read_ledger
from failsoft.training.progress import PositionMark
from train_jobs.config import JobConfig
from train_jobs.job import HereDriver


def job(home: Path, remote: str | None) -> JobConfig:
    return JobConfig(home=home, run="r", remote=remote)


def looks_at(config: JobConfig) -> None:
    HereDriver(config, ManualClock()).look_at_remote()


def begun(home: Path) -> None:
    with PositionMark(Home.find(home).run("r")).open() as mark:
        mark(3)


def test_a_store_that_can_be_used_is_let_be(tmp_path: Path) -> None:
    looks_at(job(tmp_path, f"file://{tmp_path}/far"))
    looks_at(job(tmp_path, None))
    assert read_ledger(Home.find(tmp_path).ledger).events == ()


@pytest.mark.parametrize(
    ("remote", "why"), [("foo://bar/baz", "nothing here speaks to foo://bar/baz"), ("bar", "no address")]
)
def test_an_address_that_nothing_here_speaks_to_is_refused_also_for_a_run_under_way(
    tmp_path: Path, remote: str, why: str
) -> None:
    begun(tmp_path)
    with pytest.raises(ConfigError, match=why):
        looks_at(job(tmp_path, remote))


def test_a_run_that_has_not_begun_is_refused_a_store_that_it_cannot_write(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    driver = HereDriver(job(tmp_path, f"file://{tmp_path}/file"), ManualClock())
    with pytest.raises(ConfigError, match=r"/file can't be used: .*or train without --remote"):
        driver.start()
    assert not (Home.find(tmp_path).run("r") / "prepared").exists()


def test_a_run_that_is_under_way_goes_on_without_its_store_and_says_so(tmp_path: Path) -> None:
    begun(tmp_path)
    (tmp_path / "file").touch()
    looks_at(job(tmp_path, f"file://{tmp_path}/file"))
    (said,) = read_ledger(Home.find(tmp_path).ledger).events
    assert said.kind == "remote_unreachable"
    assert said.why.endswith("the local checkpoints stand, training goes on")


def test_a_library_that_asks_the_store_for_its_place_may_fail_of_it_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_url: str) -> Place:
        raise OSError("could not resolve\nthe host of the bucket")

    monkeypatch.setattr("train_jobs.job.place_of", away)
    with pytest.raises(ConfigError, match="s3://b can't be used: OSError: could not resolve the host"):
        looks_at(job(tmp_path, "s3://b"))


@pytest.mark.parametrize("under_way", [True, False])
def test_what_a_library_says_is_said_without_the_secret_of_the_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, under_way: bool
) -> None:
    def away(url: str) -> Place:
        raise OSError(f"https://acct?{url.partition('?')[2]} is away")

    monkeypatch.setattr("train_jobs.job.place_of", away)
    config = job(tmp_path, "abfs://c@acct/x?sig=sesame")
    if under_way:
        begun(tmp_path)
        looks_at(config)
        assert "sesame" not in Home.find(tmp_path).ledger.read_text("utf-8")
        assert "?sig=… is away" in read_ledger(Home.find(tmp_path).ledger).events[0].why
        return
    with pytest.raises(ConfigError, match=r"\?sig=… is away") as refused:
        looks_at(config)
    assert "sesame" not in str(refused.value)
