from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.errors import ConfigError
from failsoft.health.monitor import HealthPolicy, Status
from failsoft.health.sequential import Tally
from failsoft.health.signals import Level, SignalPolicy
from failsoft.health.window import Outcome
from failsoft.serving.plan.plan import Arm
from failsoft.serving.rollout.evidence import Counts, Gatherer, OutcomeBatch, interleaved
from failsoft.serving.watching.beside import Beside

PAIR = Beside.pair(confidence=0.9, live_confidence=0.8, latency_ms=3.0, live_latency_ms=5.0)
COUNTS = st.dictionaries(st.sampled_from(Outcome), st.integers(0, 40))


def batch(sequence: int, outcomes: dict[Outcome, int], *, arm: Arm = Arm.SUBJECT, gateway: str = "g1") -> OutcomeBatch:
    return OutcomeBatch(
        gateway=gateway, sequence=sequence, epoch=1, arm=arm, mirrored=False, outcomes=outcomes, agree=1, compared=2
    )


def gatherer() -> Gatherer:
    return Gatherer(HealthPolicy(), max_gap_s=2.0, counts=Counts())


@given(COUNTS)
def test_a_batch_survives_json(outcomes: dict[Outcome, int]) -> None:
    assert OutcomeBatch.of(batch(3, outcomes).as_json()) == batch(3, outcomes)


def test_what_a_gateway_of_a_later_version_reports_is_counted_without_what_it_added() -> None:
    """While an app is upgraded, or an upgrade is taken back, gateways of both versions report to one controller."""
    told = replace(batch(3, {Outcome.GOOD: 2}), beside=PAIR)
    body = told.as_json() | {"added_later": 1}
    body["beside"] |= {"added_later": [1, 2], "later_bins": [3]}
    assert OutcomeBatch.of(body) == told


@pytest.mark.parametrize("body", [{}, {"outcomes": {"sideways": 1}}, {"outcomes": {}, "extra": 1}])
def test_what_is_not_a_batch_is_refused(body: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="not an outcome batch"):
        OutcomeBatch.of(body)


def test_counts_below_zero_are_refused() -> None:
    with pytest.raises(ConfigError, match="impossible"):
        batch(1, {Outcome.GOOD: -1})


@given(COUNTS)
def test_interleaving_keeps_every_outcome(outcomes: dict[Outcome, int]) -> None:
    assert Counter(interleaved(outcomes)) == +Counter(outcomes)


def test_a_healthy_batch_larger_than_the_window_does_not_trip() -> None:
    found = gatherer()
    found.add(batch(1, {Outcome.GOOD: 950, Outcome.WEAK: 50}), 0.0)  # 5 %, but half the window if they came last
    assert found.subject.verdict().status is Status.HEALTHY


def test_a_batch_that_arrives_twice_or_late_counts_once() -> None:
    found = gatherer()
    assert [found.is_new(batch(number, {})) for number in (1, 2, 2, 1, 3)] == [True, True, False, False, True]
    assert found.is_new(batch(1, {}, gateway="g2"))


def test_gateways_that_come_and_go_are_not_remembered_for_ever() -> None:
    found = gatherer()
    for number in range(5000):
        found.is_new(batch(1, {}, gateway=f"g{number}"))
    assert found.gateways <= 4096


def test_shed_and_hopeless_requests_are_no_answers() -> None:
    found = gatherer()
    found.add(batch(1, {Outcome.SHED: 50, Outcome.BAD_INPUT: 50}), 0.0)
    assert found.counts == Counts()
    assert found.since_answer_s(9.0) is None


def test_time_without_answers_does_not_count() -> None:
    found = gatherer()
    for now_s in (10.0, 11.0, 12.5, 60.0, 61.0):
        found.add(batch(1, {Outcome.GOOD: 1}), now_s)
    assert found.counts.active_s == pytest.approx(1.0 + 1.5 + 1.0)


def test_arms_are_counted_apart() -> None:
    found = gatherer()
    found.add(batch(1, {Outcome.GOOD: 3, Outcome.LATE: 1}), 0.0)
    found.add(batch(2, {Outcome.GOOD: 5, Outcome.ERROR: 2}, arm=Arm.STAND_IN), 0.0)
    assert (found.counts.in_stage, found.counts.stand_in) == (Tally(bad=1, total=4), Tally(bad=2, total=7))


def test_counts_survive_json() -> None:
    counts = Counts(in_stage=Tally(bad=1, total=2), on_trial=Tally(bad=3, total=9), active_s=4.5)
    assert Counts.of(counts.as_json()) == counts


def told(
    sequence: int, *, noisy: dict[str, int], others: dict[Outcome, int], slow: int = 0, arm: Arm = Arm.SUBJECT
) -> OutcomeBatch:
    """A report in which one caller, number 7, is told apart from the others."""
    whole = Counter(others)
    whole.update({Outcome(name): count for name, count in noisy.items() if name not in ("slow", "timed")})
    return OutcomeBatch(
        gateway="g1",
        sequence=sequence,
        epoch=1,
        arm=arm,
        mirrored=False,
        outcomes=dict(whole),
        slow=slow + noisy.get("slow", 0),
        timed=sum(others.values()) + noisy.get("timed", 0),
        callers={7: noisy},
    )


def test_one_callers_bad_wave_over_all_gateways_is_taken_out_of_windows_and_tallies() -> None:
    found = gatherer()
    for number in range(1, 60):
        found.add(told(number, noisy={"weak": 5, "slow": 5, "timed": 5}, others={Outcome.GOOD: 5}), number / 10)
        assert found.subject.verdict().status is not Status.DEGRADED
    assert found.subject.apart == {7}
    assert found.counts.in_stage.bad == 0, "what it brought before it was set apart is taken back"
    assert found.counts.in_stage.total == 59 * 5


def test_a_model_that_is_broken_for_all_trips_though_one_caller_brings_half() -> None:
    found = gatherer()
    for number in range(1, 12):
        found.add(told(number, noisy={"weak": 5}, others={Outcome.WEAK: 5}), number / 10)
    assert found.subject.verdict().status is Status.DEGRADED
    assert found.counts.in_stage.bad == 110


def test_slow_answers_of_quiet_gateways_together_trip_each_arm_by_itself() -> None:
    found = gatherer()
    for number in range(1, 20):
        found.add(told(number, noisy={}, others={Outcome.GOOD: 5}, slow=4), number / 10)
        found.add(told(number, noisy={}, others={Outcome.GOOD: 5}, arm=Arm.STAND_IN), number / 10)
    assert found.subject.verdict().reason.startswith("latency: ")
    assert found.stand_in.verdict().status is Status.HEALTHY


@given(COUNTS, COUNTS)
def test_what_callers_brought_and_what_the_others_brought_is_all_there_is(
    noisy: dict[Outcome, int], others: dict[Outcome, int]
) -> None:
    report = told(1, noisy={str(outcome): count for outcome, count in noisy.items()}, others=others)
    assert Counter(report.part(7)) + Counter(report.without([7])) == +Counter(report.outcomes)
    assert OutcomeBatch.of(report.as_json()) == report


@pytest.mark.parametrize(
    "changes",
    [
        {"sequence": math.nan},
        {"sequence": "2"},
        {"sequence": -1},
        {"epoch": None},
        {"gateway": None},
        {"mirrored": "no"},
        {"latency_ms": "1"},
        {"outcomes": {"good": 1.9}},
        {"outcomes": {"good": 10**12}},
        {"slow": 0, "timed": 10**9},
        {"callers": {str(number): {} for number in range(1_000_001)}},
    ],
    ids=lambda changes: f"{next(iter(changes))}-{str(next(iter(changes.values())))[:20]}",
)
def test_a_report_that_no_gateway_makes_is_refused_whole(changes: dict[str, object]) -> None:
    """A number that is none would be new for ever, and 10**12 answers would be fed to a window one by one."""
    with pytest.raises(ConfigError):
        OutcomeBatch.of(batch(1, {Outcome.GOOD: 2}).as_json() | changes)


@pytest.mark.parametrize(
    "wrong",
    [
        {"slow": 3, "timed": 2},
        {"callers": {7: {"weak": -1}}},
        {"slow": -1},
        {"callers": {7: {"good": 3}, 8: {"good": 3}}},
        {"callers": {7: {"sideways": 1}}},
        {"callers": {7: {"timed": 1}}},
        {"timed": 1.5},
        {"labelled": 2.5},
        {"compared": math.inf},
        {"latency_ms": math.nan},
        {"latency_ms": math.inf},
        {"latency_ms": 10**400},
        {"latency_ms": "5"},
    ],
)
def test_impossible_parts_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="impossible"):
        replace(batch(1, {Outcome.GOOD: 5}), **wrong)


def test_what_may_not_trip_is_not_held_against_a_model_on_trial_either() -> None:
    signals = SignalPolicy(quality=Level.WARN)
    found = Gatherer(HealthPolicy(), max_gap_s=2.0, counts=Counts(), signals=signals)
    found.add(batch(1, {Outcome.WEAK: 50, Outcome.ERROR: 1, Outcome.GOOD: 49}), 0.0)
    assert found.counts.in_stage == Tally(bad=1, total=100)
    assert found.subject.verdict().status is Status.HEALTHY
    assert "weak" in found.subject.warnings()
