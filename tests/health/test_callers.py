"""One caller's bad wave trips nothing for the others, and a model that is broken for all is still noticed."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.errors import ConfigError
from failsoft.health.callers import CallerPolicy, CallerWindows, caller_in_words, caller_of
from failsoft.health.monitor import HealthMonitor, HealthPolicy, Status
from failsoft.health.window import Outcome

GOOD, WEAK, LATE = Outcome.GOOD, Outcome.WEAK, Outcome.LATE
NOISY = 0
"""The caller who sends garbage; nine others share what it leaves of the traffic."""


def caller(rng: random.Random, noisy_share: float) -> int:
    return NOISY if rng.random() < noisy_share else rng.randrange(1, 10)


def answer(rng: random.Random, bad: float) -> Outcome:
    return WEAK if rng.random() < bad else GOOD


def calls_until_trip(
    windows: CallerWindows, rng: random.Random, *, bad: float, noisy_bad: float, noisy_share: float, calls: int
) -> int | None:
    for number in range(1, calls + 1):
        who = caller(rng, noisy_share)
        windows.record(answer(rng, noisy_bad if who == NOISY else bad), who)
        if windows.verdict().status is Status.DEGRADED:
            return number
    return None


@pytest.mark.parametrize(("noisy_share", "noisy_bad"), [(0.5, 1.0), (0.5, 0.4), (0.1, 1.0), (0.75, 1.0)])
def test_one_caller_of_ten_that_sends_garbage_trips_nothing_in_a_hundred_thousand_calls(
    noisy_share: float, noisy_bad: float
) -> None:
    windows, rng = CallerWindows(HealthPolicy()), random.Random(3)
    tripped = calls_until_trip(windows, rng, bad=0.02, noisy_bad=noisy_bad, noisy_share=noisy_share, calls=100_000)
    assert tripped is None
    assert windows.verdict().status is Status.HEALTHY
    if noisy_share >= 0.5:
        assert set(windows.apart()) == {NOISY}
        assert windows.apart()[NOISY].status is Status.DEGRADED


@pytest.mark.parametrize("bad", [1.0, 0.4, 0.3])
def test_a_model_that_is_broken_for_all_is_noticed_within_half_as_many_calls_again(bad: float) -> None:
    """Mean over 60 incidents after healthy traffic, half of which comes from one caller."""
    alone, together = 0, 0
    for seed in range(60):
        windows, plain = CallerWindows(HealthPolicy()), CallerWindows(HealthPolicy(), CallerPolicy(max_apart=0))
        for each in (windows, plain):
            rng = random.Random(seed)
            assert calls_until_trip(each, rng, bad=0.02, noisy_bad=0.02, noisy_share=0.5, calls=300) is None
        alone += calls_until_trip(plain, random.Random(seed), bad=bad, noisy_bad=bad, noisy_share=0.5, calls=9999) or 0
        found = calls_until_trip(windows, random.Random(seed), bad=bad, noisy_bad=bad, noisy_share=0.5, calls=9999)
        assert found is not None
        together += found
    assert together <= 1.5 * alone


@given(st.lists(st.sampled_from(list(Outcome)), max_size=300), st.sampled_from([None, 7]))
def test_one_caller_or_none_is_judged_as_by_a_plain_window(outcomes: list[Outcome], only: int | None) -> None:
    windows, plain = CallerWindows(HealthPolicy()), HealthMonitor()
    for outcome in outcomes:
        windows.record(outcome, only)
        plain.record(outcome)
        assert windows.verdict() == plain.verdict()
    assert windows.apart() == {}


@given(st.lists(st.tuples(st.sampled_from([GOOD, WEAK, LATE]), st.integers(0, 4) | st.none()), max_size=400))
def test_a_trip_never_rests_on_less_than_the_shared_window_holds_and_nothing_grows(
    calls: list[tuple[Outcome, int | None]],
) -> None:
    windows = CallerWindows(HealthPolicy(), CallerPolicy(memory=150, max_apart=2))
    for outcome, who in calls:
        windows.record(outcome, who)
        verdict = windows.verdict()
        assert verdict.status is not Status.DEGRADED or (verdict.total >= 20 and verdict.bad >= 0.2 * verdict.total)
        assert verdict.total <= 100
        assert len(windows.apart()) <= 2


def test_late_answers_to_one_caller_set_it_apart_like_weak_ones() -> None:
    windows = CallerWindows(HealthPolicy())
    for turn in range(200):
        windows.record(GOOD, 1 + turn % 5)
        windows.record(LATE if turn >= 100 else GOOD, NOISY)
        assert windows.verdict().status is not Status.DEGRADED
    assert set(windows.apart()) == {NOISY}
    assert windows.newly_apart == [NOISY]


def test_a_caller_who_is_well_again_comes_back_to_the_others() -> None:
    windows, rng = CallerWindows(HealthPolicy()), random.Random(1)
    assert calls_until_trip(windows, rng, bad=0.0, noisy_bad=1.0, noisy_share=0.5, calls=400) is None
    assert windows.holds_back(NOISY)
    assert calls_until_trip(windows, rng, bad=0.0, noisy_bad=0.0, noisy_share=0.5, calls=400) is None
    assert windows.apart() == {}
    assert not windows.holds_back(NOISY)


def test_a_caller_apart_gets_each_tenth_request_through_as_a_probe_and_others_all() -> None:
    windows = CallerWindows(HealthPolicy())
    assert calls_until_trip(windows, random.Random(1), bad=0.0, noisy_bad=1.0, noisy_share=0.5, calls=400) is None
    assert sum(windows.holds_back(NOISY) for _ in range(100)) == 90
    assert not any(windows.holds_back(who) for who in (1, None) for _ in range(20))


def test_many_callers_who_are_bad_together_are_held_against_the_model() -> None:
    windows = CallerWindows(HealthPolicy())
    for turn in range(400):
        windows.record(WEAK if turn >= 200 and turn % 10 < 6 else GOOD, turn % 10)
        if windows.verdict().status is Status.DEGRADED:
            break
    assert windows.verdict().status is Status.DEGRADED


def test_a_caller_with_nearly_all_the_traffic_is_the_traffic() -> None:
    windows = CallerWindows(HealthPolicy())
    for _ in range(100):
        windows.record(GOOD, NOISY)
    windows.record(GOOD, 1)
    for _ in range(20):
        windows.record(WEAK, NOISY)
    assert windows.verdict().status is Status.DEGRADED


def test_another_plan_forgets_who_was_apart() -> None:
    windows = CallerWindows(HealthPolicy())
    assert calls_until_trip(windows, random.Random(1), bad=0.0, noisy_bad=1.0, noisy_share=0.5, calls=400) is None
    windows.clear()
    assert (windows.apart(), windows.verdict().total, windows.newly_apart) == ({}, 0, [])


def test_a_key_has_the_same_number_everywhere_and_its_number_does_not_say_it() -> None:
    assert caller_of("user-17") == 0x879EF91F755EB213
    assert caller_of("user-17") != caller_of("user-18")
    assert len(caller_in_words(caller_of("\ud83d"))) == 8


@pytest.mark.parametrize(("wrong", "words"), [({"memory": 0}, "memory is 0"), ({"max_apart": -1}, "max_apart is -1")])
def test_a_policy_that_can_remember_no_one_is_refused(wrong: dict[str, int], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        CallerPolicy(**wrong)


def test_while_the_others_have_not_shown_which_it_is_the_verdict_waits_and_says_so() -> None:
    windows = CallerWindows(HealthPolicy())
    for turn in range(24):
        windows.record(WEAK, NOISY)
        if turn % 4 == 0:
            windows.record(GOOD, 1)
    verdict = windows.verdict()
    assert (verdict.status, verdict.undecided) == (Status.HEALTHY, True)
    assert "one caller's: waiting" in verdict.reason


def test_others_who_are_never_quite_healthy_do_not_keep_a_bad_caller_among_them_for_ever() -> None:
    windows = CallerWindows(HealthPolicy())
    for turn in range(1000):
        windows.record(WEAK if turn >= 200 else GOOD, NOISY)
        windows.record(WEAK if turn % 8 == 0 else GOOD, 1 + turn % 9)  # 12.5 %, above half of the limit
        assert windows.verdict().status is not Status.DEGRADED
    assert set(windows.apart()) == {NOISY}
