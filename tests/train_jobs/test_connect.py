from __future__ import annotations

from pathlib import Path

import pytest

from failsoft.errors import NoRayError
from failsoft.training.survival.room import WorkerRange
from train_jobs.config import JobConfig
from train_jobs.connect import connected, private_workers


@pytest.mark.parametrize(
    ("least", "most", "cores", "threads", "places"),
    [(1, 64, 2, 1, 2), (1, 64, 8, 4, 2), (1, 2, 64, 1, 2), (3, 64, 2, 1, 3), (1, 4, 2, 8, 1)],
)
def test_a_range_of_workers_on_one_machine_ends_where_its_cores_do_and_never_below_the_least(
    least: int, most: int, cores: int, threads: int, places: int
) -> None:
    assert private_workers(WorkerRange(least=least, most=most), cores, threads) == places


@pytest.mark.parametrize("error", [Exception("The current node timed out during startup"), RuntimeError("no GCS")])
def test_a_private_ray_that_does_not_come_up_is_no_ray_and_no_bug(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(**_options: object) -> None:
        raise error

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("train_jobs.connect.settle_environment", lambda: None)
    monkeypatch.setattr("failsoft.local_ray.settle_environment", lambda: None)
    monkeypatch.setattr("ray.init", fail)
    with pytest.raises(NoRayError, match=f"{error}.*start again"), connected(JobConfig(home=tmp_path, run="r")):
        pass


def test_a_fixed_number_of_workers_is_what_was_asked_for() -> None:
    assert private_workers(WorkerRange.of(4), 1, 2) == 4
