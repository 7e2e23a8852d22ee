"""Shares by position: what is decided holds from where it was said to, and nothing is loaded twice for it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from failsoft.errors import ConfigError
from failsoft.training.batches import GlobalBatches
from failsoft.training.loading.checked import Checked
from failsoft.training.loading.lane import LoaderPolicy
from failsoft.training.loading.loader import GuardedLoader
from failsoft.training.loading.order import RankOrder
from failsoft.training.loop import LoopPlan
from failsoft.training.pace.policy import RemedyPolicy
from failsoft.training.pace.remedy import Decision
from failsoft.training.pace.schedule import Schedule
from failsoft.training.pace.shares import FULL, part
from tests.training.loading.data import RowData
from tests.training.toys import toy_loop

EVEN = Decision((FULL, FULL), 1)
BATCHES = GlobalBatches(num_samples=64, global_batch=16, seed=2)
TOTAL = 20


class TwoRanks:
    """The first of two ranks that say the same; nothing here talks to a real one."""

    rank, world = 0, 2


@given(changes=st.lists(st.tuples(st.integers(1, 40), st.integers(1, FULL)), max_size=8))
def test_each_position_is_divided_by_the_decision_that_was_said_last_for_it(changes: list[tuple[int, int]]) -> None:
    schedule, wanted = Schedule(EVEN), [EVEN] * 50
    for start, share in changes:
        decision = Decision((FULL, share), 1)
        schedule.decided(decision, holds_from=start)
        wanted[start:] = [decision] * (50 - start)
    assert [schedule.at(position) for position in range(50)] == wanted


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_a_loader_that_is_ahead_follows_changed_shares_without_loading_anything_twice(workers: int) -> None:
    order = RankOrder(batches=BATCHES, rank=1, world=2, total=TOTAL)
    schedule = Schedule(EVEN)
    with GuardedLoader(Checked(RowData(64)), order, policy=LoaderPolicy(workers=workers)) as loader:
        loader.follow(schedule.shares_at)
        pids = set[int]()
        for position in range(TOTAL):
            mine = part(BATCHES.global_indices(position), schedule.shares_at(position), 1)
            batch = loader.fetch(position, tuple(mine.tolist()))
            assert batch.indices == tuple(mine.tolist())
            pids |= set(loader.worker_pids())
            if position in {5, 11}:
                light = Decision((FULL, 5 if position == 5 else FULL), 1)
                schedule.decided(light, holds_from=position + 1 + loader.ahead)
        assert len(pids) == workers  # a batch by the wrong shares would have cost its worker
        assert loader.deaths == 0
    sizes = [len(part(BATCHES.global_indices(position), schedule.shares_at(position), 1)) for position in range(TOTAL)]
    assert set(sizes) == {8, 4}


def test_a_task_that_loads_and_does_not_follow_is_refused_the_remedy(tmp_path: Path) -> None:
    class Loading:
        def load_samples(self, position: int, indices: NDArray[np.int64], *, counted: bool) -> float:
            raise NotImplementedError

    loop = toy_loop(tmp_path, plan=LoopPlan(total_batches=4, seed=1, pace_remedy=RemedyPolicy()))
    loop._ranks, loop.task = TwoRanks(), Loading()  # type: ignore[assignment]
    with pytest.raises(ConfigError, match="give the task its feed's `ahead` and `follow`"):
        loop._pace_keeper()
