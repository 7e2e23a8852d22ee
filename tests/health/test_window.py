"""The window's quick counts are those that a slow recount finds."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.errors import ConfigError
from failsoft.health.window import Outcome, SlidingWindow

outcomes = st.lists(st.sampled_from(list(Outcome)), max_size=60)


@given(st.integers(1, 20), outcomes)
def test_counts_equal_a_recount_of_the_last_outcomes(size: int, recorded: list[Outcome]) -> None:
    window = SlidingWindow(size)
    for index, outcome in enumerate(recorded):
        window.record(outcome)
        assert window.snapshot().counts == dict(Counter(recorded[: index + 1][-size:]))


@given(outcomes, st.frozensets(st.sampled_from(list(Outcome))))
def test_a_count_of_some_outcomes_is_the_sum_of_each(recorded: list[Outcome], wanted: frozenset[Outcome]) -> None:
    window = SlidingWindow(10)
    for outcome in recorded:
        window.record(outcome)
    assert window.snapshot().count_of(wanted) == sum(outcome in wanted for outcome in recorded[-10:])
    assert window.snapshot().total == min(10, len(recorded))


def test_a_snapshot_does_not_change_later() -> None:
    window = SlidingWindow(3)
    before = window.snapshot()
    window.record(Outcome.WEAK)
    assert (before.total, window.snapshot().total) == (0, 1)


def test_a_cleared_window_begins_anew() -> None:
    window = SlidingWindow(2)
    for outcome in (Outcome.WEAK, Outcome.WEAK, Outcome.GOOD):
        window.record(outcome)
    window.clear()
    window.record(Outcome.GOOD)
    assert window.snapshot().counts == {Outcome.GOOD: 1}


def test_a_window_without_room_is_refused() -> None:
    with pytest.raises(ConfigError, match="window size is 0"):
        SlidingWindow(0)
