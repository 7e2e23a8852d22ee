from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from failsoft.errors import ConfigError
from failsoft.training.loop import LoopPlan, TrainLoop
from failsoft.training.pace.policy import RemedyPolicy
from tests.training.pace.pace_ranks import GIVEN
from tests.training.toys import ToyTask, toy_loop


class LoadsAhead(ToyTask):
    def load_samples(self, position: int, indices: NDArray[np.int64], *, counted: bool) -> float:
        return float(len(indices)) if counted else 0.0


class Two:
    """The first of two ranks, who never meets the other."""

    rank = 0
    world = 2

    def sum_(self, values: torch.Tensor) -> torch.Tensor:
        return values

    def gather(self, text: str) -> list[str]:
        return [text, text]

    def broadcast_(self, values: torch.Tensor, source: int) -> torch.Tensor:
        return values


def test_shares_do_not_differ_where_samples_are_loaded_ahead(tmp_path: Path) -> None:
    loop = toy_loop(tmp_path, plan=LoopPlan(total_batches=4, seed=3, pace_remedy=RemedyPolicy()))
    loop.task, loop.guard.ranks = LoadsAhead(loop.state.model), Two()
    with pytest.raises(ConfigError, match="loads its samples ahead"):
        TrainLoop(**{name: getattr(loop, name) for name in GIVEN})
