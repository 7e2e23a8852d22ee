"""A rung that fails rests, is tried by one request at a time, and no lost or late news confuses that."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.errors import ConfigError
from failsoft.health.backoff import BackoffPolicy
from failsoft.health.clock import ManualClock
from failsoft.serving.fallback.breaker import BreakerPolicy, RungBreaker, RungState, Ticket

POLICY = BreakerPolicy(
    failures_in_a_row=3,
    try_within_s=2.0,
    rest=BackoffPolicy(first_s=1.0, factor=2.0, cap_s=4.0, jitter_fraction=0.0),
)


class Bench:
    """A breaker and the clock it looks at."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.breaker = RungBreaker(POLICY, clock=self.clock, rng=random.Random(0))

    def ticket(self) -> Ticket:
        ticket = self.breaker.admit()
        assert ticket is not None
        return ticket

    def fail(self, times: int = 1) -> None:
        for _ in range(times):
            self.breaker.failed(self.ticket(), "it raised")

    def resting(self) -> Bench:
        self.fail(3)
        assert self.breaker.state is RungState.RESTING
        return self

    def rest_s(self) -> float:
        """Seconds until the next request is let through."""
        waited_s = 0.0
        while self.breaker.admit() is None:
            self.clock.advance(0.5)
            waited_s += 0.5
        return waited_s


def test_it_rests_after_so_many_failures_in_a_row_and_says_why() -> None:
    bench = Bench()
    bench.fail(2)
    assert bench.breaker.state is RungState.ASKED
    bench.fail()
    assert bench.breaker.admit() is None
    assert bench.breaker.why == "3 failures in a row, the last: it raised"


def test_failures_with_successes_between_them_are_not_in_a_row() -> None:
    bench = Bench()
    for _ in range(5):
        bench.fail(2)
        bench.breaker.succeeded(bench.ticket())
    assert bench.breaker.state is RungState.ASKED


def test_of_two_hundred_requests_at_the_end_of_a_rest_one_gets_through_and_its_failure_ends_the_try() -> None:
    """B4: half-open lets the flood through."""
    bench = Bench().resting()
    bench.clock.advance(1.0)
    tickets = [ticket for _ in range(200) if (ticket := bench.breaker.admit()) is not None]
    assert len(tickets) == 1
    bench.breaker.failed(tickets[0], "still down")
    assert (bench.breaker.state, bench.breaker.admit()) == (RungState.RESTING, None)


def test_a_try_that_never_reports_is_reclaimed_and_the_next_rest_is_longer() -> None:
    """B1: half-open for ever."""
    bench = Bench().resting()
    bench.clock.advance(1.0)
    bench.ticket()
    bench.clock.advance(1.9)
    assert bench.breaker.admit() is None
    assert bench.breaker.state is RungState.TRIED
    bench.clock.advance(0.2)
    assert bench.breaker.admit() is None
    assert (bench.breaker.state, bench.rest_s()) == (RungState.RESTING, 2.0)


def test_a_try_that_was_not_made_gives_its_place_back_at_once() -> None:
    """B2: admitted by one rule, blocked by the next, and never completed."""
    bench = Bench().resting()
    bench.clock.advance(1.0)
    bench.breaker.returned(bench.ticket())
    bench.breaker.succeeded(bench.ticket())
    assert bench.breaker.state is RungState.ASKED


def test_news_from_before_the_last_move_changes_nothing() -> None:
    """B5: a late success overrides a failure and sets the back-off back."""
    bench = Bench()
    early = [bench.ticket() for _ in range(5)]
    bench.resting()
    for ticket in early:
        bench.breaker.succeeded(ticket)
    assert (bench.breaker.state, bench.breaker.rests) == (RungState.RESTING, 1)
    bench.clock.advance(1.0)
    lost = bench.ticket()
    bench.clock.advance(2.5)
    assert bench.breaker.admit() is None  # reclaimed
    bench.breaker.succeeded(lost)
    assert (bench.breaker.state, bench.breaker.rests) == (RungState.RESTING, 2)


def test_each_rest_is_longer_up_to_the_cap_and_the_first_one_again_only_after_it_went_well_for_a_while() -> None:
    bench = Bench().resting()
    rests = []
    for _ in range(4):
        ticket = None
        waited_s = 0.0
        while (ticket := bench.breaker.admit()) is None:
            bench.clock.advance(0.5)
            waited_s += 0.5
        rests.append(waited_s)
        bench.breaker.failed(ticket, "still down")
    assert rests == [1.0, 2.0, 4.0, 4.0]
    bench.clock.advance(4.0)
    bench.breaker.succeeded(bench.ticket())
    bench.fail(3)  # one good answer was not enough to trust it
    assert bench.breaker.rests == 6
    bench.clock.advance(4.0)
    for _ in range(3):
        bench.breaker.succeeded(bench.ticket())
    assert bench.breaker.rests == 0


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"failures_in_a_row": 0}, "failures_in_a_row is 0"), ({"try_within_s": math.nan}, "try_within_s is nan")],
)
def test_a_breaker_that_would_never_or_always_rest_is_refused(settings: dict[str, float], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        BreakerPolicy(**settings)  # type: ignore[arg-type]  # the wrong values are the point


@given(st.lists(st.sampled_from(["admit", "good", "bad", "back", "wait"]), max_size=60))
def test_whatever_happens_at_most_one_tries_and_a_rung_that_works_is_asked_again(steps: list[str]) -> None:
    bench = Bench()
    breaker, held = bench.breaker, list[Ticket]()
    report = {"good": breaker.succeeded, "back": breaker.returned, "bad": lambda ticket: breaker.failed(ticket, "down")}
    for step in steps:
        if step == "wait":
            bench.clock.advance(0.7)
        elif step == "admit":
            tried, ticket = breaker.state is RungState.TRIED, breaker.admit()
            assert not (tried and ticket)
            held += [ticket] if ticket else []
        elif held:
            report[step](held.pop(0))
    for _ in range(3):
        bench.clock.advance(10.0)
        if (ticket := breaker.admit()) is not None:
            breaker.succeeded(ticket)
    assert breaker.state is RungState.ASKED
