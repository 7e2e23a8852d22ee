"""The bounds hold although one looks after every answer."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.errors import ConfigError
from failsoft.health.sequential import (
    Comparison,
    Tally,
    binomial_tail,
    compare_arms,
    compare_with_rate,
    exact_lower_bound,
    log_evidence_against,
    rate_bounds,
    samples_needed,
)

ALPHA = 0.05


def tallies(max_total: int = 300) -> st.SearchStrategy[Tally]:
    totals = st.integers(0, max_total)
    return totals.flatmap(lambda total: st.integers(0, total).map(lambda bad: Tally(bad=bad, total=total)))


@pytest.mark.parametrize("rate", [0.02, 0.2, 0.5])
def test_peeking_after_every_answer_is_wrong_in_at_most_alpha_of_the_runs(rate: float) -> None:
    rng, runs, wrong = np.random.default_rng(7), 400, 0
    for _ in range(runs):
        bad = np.cumsum(rng.random(400) < rate)
        wrong += any(
            log_evidence_against(rate, Tally(bad=int(count), total=index + 1)) >= -math.log(ALPHA)
            for index, count in enumerate(bad)
        )
    allowed = runs * ALPHA + 3 * math.sqrt(runs * ALPHA * (1 - ALPHA))
    assert wrong <= allowed


@given(tallies(), st.sampled_from([0.001, 0.05, 0.3]))
def test_bounds_hold_what_the_evidence_does_not_exclude(tally: Tally, alpha: float) -> None:
    low, high = rate_bounds(tally, alpha=alpha)
    assert 0.0 <= low <= high <= 1.0
    assert not tally.total or low <= tally.bad / tally.total <= high
    for outside in (low - 1e-6, high + 1e-6):
        if 0.0 < outside < 1.0:
            assert log_evidence_against(outside, tally) >= -math.log(alpha) - 1e-3


@given(tallies())
def test_a_smaller_alpha_gives_wider_bounds(tally: Tally) -> None:
    narrow, wide = rate_bounds(tally, alpha=0.1), rate_bounds(tally, alpha=0.001)
    assert wide[0] <= narrow[0] + 1e-9
    assert narrow[1] <= wide[1] + 1e-9


def test_without_evidence_anything_is_possible() -> None:
    assert rate_bounds(Tally(bad=0, total=0), alpha=ALPHA) == (0.0, 1.0)


@pytest.mark.parametrize("alpha", [0.0, 1.0, -1.0, math.nan])
def test_an_error_probability_outside_0_to_1_is_refused(alpha: float) -> None:
    with pytest.raises(ConfigError, match="alpha is"):
        rate_bounds(Tally(bad=0, total=1), alpha=alpha)


@pytest.mark.parametrize(("bad", "total"), [(2, 1), (-1, 3)])
def test_a_tally_that_cannot_be_is_refused(bad: int, total: int) -> None:
    with pytest.raises(ConfigError, match="impossible"):
        Tally(bad=bad, total=total)


def test_too_little_evidence_is_undecided() -> None:
    few = Tally(bad=0, total=5)
    assert compare_with_rate(few, 0.05, margin=0.05, alpha=ALPHA) is Comparison.UNDECIDED
    assert compare_arms(few, few, margin=0.05, alpha=ALPHA) is Comparison.UNDECIDED


@pytest.mark.parametrize("rate", [math.nan, math.inf * 0])
def test_a_reference_that_is_not_a_number_is_undecided(rate: float) -> None:
    """C5: empty or NaN results crashed or passed elsewhere."""
    assert compare_with_rate(Tally(bad=0, total=10_000), rate, margin=0.05, alpha=ALPHA) is Comparison.UNDECIDED


def test_enough_good_evidence_passes_and_enough_bad_evidence_does_not() -> None:
    good, bad = Tally(bad=40, total=1000), Tally(bad=300, total=1000)
    assert compare_with_rate(good, 0.05, margin=0.05, alpha=ALPHA) is Comparison.NOT_WORSE
    assert compare_with_rate(bad, 0.05, margin=0.05, alpha=ALPHA) is Comparison.WORSE
    assert compare_arms(good, good, margin=0.10, alpha=ALPHA) is Comparison.NOT_WORSE
    assert compare_arms(bad, good, margin=0.05, alpha=ALPHA) is Comparison.WORSE


@given(tallies(60), tallies(60))
def test_no_two_arms_are_worse_than_each_other(one: Tally, other: Tally) -> None:
    there = compare_arms(one, other, margin=0.0, alpha=ALPHA)
    back = compare_arms(other, one, margin=0.0, alpha=ALPHA)
    assert not there is back is Comparison.WORSE


def test_samples_needed_are_enough_and_one_less_is_not() -> None:
    for rate, margin in product((0.0, 0.03, 0.1), (0.05, 0.1)):
        needed = samples_needed(rate, margin=margin, alpha=ALPHA)
        at = Tally(bad=math.ceil(rate * needed), total=needed)
        before = Tally(bad=math.ceil(rate * (needed - 1)), total=needed - 1)
        assert compare_with_rate(at, rate, margin=margin, alpha=ALPHA) is Comparison.NOT_WORSE
        assert compare_with_rate(before, rate, margin=margin, alpha=ALPHA) is Comparison.UNDECIDED


def test_samples_needed_says_so_when_no_number_would_do() -> None:
    assert samples_needed(0.1, margin=0.0, alpha=ALPHA, cap=5000) == 5000


@given(st.integers(0, 30), st.integers(0, 25), st.integers(0, 10))
def test_the_binomial_tail_is_the_exact_one(at_least: int, total: int, tenths: int) -> None:
    rate = Fraction(tenths, 10)
    exact = sum(comb(total, k) * rate**k * (1 - rate) ** (total - k) for k in range(max(at_least, 0), total + 1))
    assert binomial_tail(at_least, total, tenths / 10) == pytest.approx(float(exact), abs=1e-12)


@pytest.mark.parametrize("rate", [0.0, 1e-6])
def test_a_tail_too_small_for_a_float_is_zero_at_once_and_not_after_each_of_its_terms(rate: float) -> None:
    assert binomial_tail(10**11, 10**12, rate) == 0.0  # term by term this takes days


def test_the_exact_bound_of_ten_million_samples_is_found_although_most_tails_on_the_way_underflow() -> None:
    bad, total = 10_500, 10_000_000
    low = exact_lower_bound(Tally(bad=bad, total=total), alpha=1e-3)
    assert low == pytest.approx((bad - 3.09 * bad**0.5) / total, rel=1e-3)  # the normal approximation
