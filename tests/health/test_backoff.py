"""Waits grow to their cap and no further."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.errors import ConfigError
from failsoft.health.backoff import BackoffPolicy

RNG = random.Random(0)


def plain(first_s: float, factor: float, cap_s: float) -> BackoffPolicy:
    return BackoffPolicy(first_s=first_s, factor=factor, cap_s=cap_s, jitter_fraction=0.0)


def test_the_default_waits_are_10_30_and_90_seconds() -> None:
    policy = BackoffPolicy(jitter_fraction=0.0)
    assert [policy.wait_s(failures, RNG) for failures in range(5)] == [0.0, 10.0, 30.0, 90.0, 90.0]


@given(st.floats(0.0, 100.0), st.floats(1.0, 1e12), st.floats(1.0, 1e6), st.integers(-3, 10**9))
def test_a_wait_never_passes_its_cap_however_many_failures(first_s: float, factor: float, ratio: float, n: int) -> None:
    policy = plain(first_s, factor, first_s * ratio)
    assert 0.0 <= policy.wait_s(n, RNG) <= policy.cap_s


@pytest.mark.parametrize("factor", [1.01, 1.2, 3.0])
def test_waits_grow_until_they_reach_the_cap(factor: float) -> None:
    policy = plain(1.0, factor, 1000.0)
    waits = [policy.wait_s(failures, RNG) for failures in range(1, 1000)]
    assert all(before <= after for before, after in pairwise(waits))
    assert waits[-1] == 1000.0


@given(st.integers(1, 20), st.integers(0, 1000))
def test_jitter_moves_a_wait_by_its_share_at_most(failures: int, seed: int) -> None:
    policy = BackoffPolicy(jitter_fraction=0.2)
    middle = BackoffPolicy(jitter_fraction=0.0).wait_s(failures, RNG)
    assert policy.wait_s(failures, random.Random(seed)) == pytest.approx(middle, rel=0.2 + 1e-9)


def test_jitter_spreads_waiters() -> None:
    policy = BackoffPolicy(jitter_fraction=0.2)
    assert len({policy.wait_s(1, random.Random(seed)) for seed in range(50)}) > 40


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"first_s": -1.0}, "first_s is -1"),
        ({"first_s": math.nan}, "first_s is nan"),
        ({"factor": 0.5}, "factor is 0.5"),
        ({"cap_s": 1.0}, "cap_s is 1.0"),
        ({"jitter_fraction": 1.0}, "jitter_fraction is 1.0"),
    ],
)
def test_waits_that_shrink_or_can_be_none_are_refused(wrong: dict[str, float], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        BackoffPolicy(**wrong)
