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
    log_evidence_of_worse,
    rate_bounds,
    samples_needed,
    samples_needed_against,
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


def test_samples_needed_against_another_arm_are_enough_and_one_less_is_not() -> None:
    for bad, margin in product((0, 120), (0.05, 0.1)):
        stand_in = Tally(bad=bad, total=4000)
        needed = samples_needed_against(stand_in, margin=margin, alpha=ALPHA)
        for total, found in ((needed, Comparison.NOT_WORSE), (needed - 1, Comparison.UNDECIDED)):
            tally = Tally(bad=math.ceil(bad / 4000 * total), total=total)
            assert compare_arms(tally, stand_in, margin=margin, alpha=ALPHA) is found
    assert samples_needed_against(Tally(bad=1, total=5), margin=0.05, alpha=ALPHA, cap=5000) == 5000


def _at(tally: Tally, rate: float) -> float:
    """The evidence against one rate; where the data are impossible, as much as there can be."""
    return log_evidence_against(rate, tally)


@given(tallies(80), tallies(80), st.sampled_from([0.0, 0.05, 0.3]))
def test_the_evidence_of_worse_is_that_against_the_likeliest_pair_of_rates_that_are_not_worse(
    subject: Tally, other: Tally, margin: float
) -> None:
    found = log_evidence_of_worse(subject, other, margin=margin)
    if not (subject.total and other.total):
        assert found == 0.0
        return
    grid = np.linspace(0.0, 1.0, 11).tolist()
    pairs = [(high, low) for low in grid for high in grid if high <= low + margin]
    least = min(_at(subject, high) + _at(other, low) for high, low in pairs)
    assert found <= least + 1e-6  # no pair on the grid fits better
    if subject.bad / subject.total <= other.bad / other.total + margin:
        assert found <= 1e-9  # an e-value above 1 would speak of something that the data do not show


@given(tallies(80), st.sampled_from([0.0, 0.02, 0.3, 1.0]))
def test_against_a_known_rate_only_more_bad_answers_than_that_are_evidence(subject: Tally, rate: float) -> None:
    found = log_evidence_of_worse(subject, rate)
    if not subject.total:
        assert found == 0.0
    elif subject.bad / subject.total > rate:
        assert found == pytest.approx(log_evidence_against(rate, subject))
    else:
        assert found <= 1e-9


def test_a_reference_that_is_not_a_number_gives_no_evidence() -> None:
    assert math.isnan(log_evidence_of_worse(Tally(bad=1, total=2), math.nan))


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
