"""How much of a core the writer takes while the training needs them all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.training.checkpoints.writer_pace import Pace

used = st.lists(st.floats(min_value=0.0, max_value=5.0), min_size=1, max_size=40)


@given(pieces=used, share=st.floats(min_value=0.05, max_value=1.0))
def test_over_a_write_no_more_than_the_share_of_a_core_is_taken(pieces: list[float], share: float) -> None:
    pace = Pace(share=share)
    pace.begins(100.0)
    at_s, rested_s = 100.0, 0.0
    for piece in pieces:
        at_s += piece
        rested_s += pace.rest_s(at_s)
    while (rest_s := pace.rest_s(at_s)) > 0.0:
        assert rest_s <= 1.0
        rested_s += rest_s
    taken_s = at_s - 100.0
    assert taken_s <= share * (taken_s + rested_s) + 1e-6


def test_waiting_for_a_slow_disk_is_no_time_on_a_core() -> None:
    pace = Pace(share=0.1)
    pace.begins(7.0)
    assert pace.rest_s(7.0) == 0.0


def test_who_is_waited_for_rests_no_more_and_the_next_write_does_again() -> None:
    pace = Pace(share=0.1)
    pace.begins(0.0, hurried=True)
    assert pace.rest_s(0.5) == 0.0
    pace.begins(0.5)
    assert pace.rest_s(0.6) == pytest.approx(0.9)
    pace.hurried = True
    assert pace.rest_s(0.7) == 0.0


def test_a_clock_of_the_core_that_goes_back_is_no_debt() -> None:
    pace = Pace()
    pace.begins(5.0)
    assert pace.rest_s(4.0) == 0.0
