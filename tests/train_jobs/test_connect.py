from __future__ import annotations

import pytest

from failsoft.training.survival.room import WorkerRange
from train_jobs.connect import private_workers


@pytest.mark.parametrize(
    ("least", "most", "cores", "threads", "places"),
    [(1, 64, 2, 1, 2), (1, 64, 8, 4, 2), (1, 2, 64, 1, 2), (3, 64, 2, 1, 3), (1, 4, 2, 8, 1)],
)
def test_a_range_of_workers_on_one_machine_ends_where_its_cores_do_and_never_below_the_least(
    least: int, most: int, cores: int, threads: int, places: int
) -> None:
    assert private_workers(WorkerRange(least=least, most=most), cores, threads) == places


def test_a_fixed_number_of_workers_is_what_was_asked_for() -> None:
    assert private_workers(WorkerRange.of(4), 1, 2) == 4
