"""A bound over all of some work that waits."""

from __future__ import annotations

import threading

import pytest

from failsoft.health.within import within


def test_what_is_done_in_time_is_given_and_what_it_raises_is_raised() -> None:
    assert within(30.0, lambda: 7) == 7
    assert within(30.0, lambda: None) is None
    with pytest.raises(ZeroDivisionError):
        within(30.0, lambda: 1 // 0)


def test_whoever_waits_too_long_goes_on_without() -> None:
    over = threading.Event()
    with pytest.raises(TimeoutError, match=r"not done within 0\.05 s"):
        within(0.05, lambda: over.wait(30.0))
    over.set()
