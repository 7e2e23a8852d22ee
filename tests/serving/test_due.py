"""A model replica does not begin what nobody waits for any more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from failsoft.errors import SaturatedError
from failsoft.health.clock import ManualClock
from failsoft.serving.replicas.deployments import Due


class Model:
    """Takes 40 ms of made-up time."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.asked: list[Any] = []

    def predict(self, batch: Sequence[Any]) -> list[int]:
        self.asked += batch
        self.clock.advance(0.04)
        return [len(str(item)) for item in batch]


def test_a_call_in_time_is_scored_and_timed() -> None:
    clock = ManualClock()
    scores, took_ms = Due(until_s=0.25, clock=clock, working=clock).timed(Model(clock).predict, ["abc"])
    assert scores == [3]
    assert took_ms == pytest.approx(40.0)


def test_a_call_whose_callers_have_left_is_not_begun() -> None:
    clock = ManualClock()
    model, due = Model(clock), Due(until_s=0.25, clock=clock, working=clock)
    clock.advance(0.75)  # it stood in line behind a call that hung
    with pytest.raises(SaturatedError, match=r"left 0\.50 s before"):
        due.timed(model.predict, ["abc"])
    assert model.asked == []
