"""Outcomes are counted, reported, and sent again until they arrive."""

from __future__ import annotations

import pytest

from failsoft.errors import ConfigError
from failsoft.health.window import Outcome
from failsoft.serving.plan.plan import Arm
from failsoft.serving.watching.outcomes import OutcomeBuffer, Seen


def seen(outcome: Outcome = Outcome.GOOD, *, epoch: int = 1, agreed: bool | None = None) -> Seen:
    return Seen(
        epoch=epoch, arm=Arm.SUBJECT, outcome=outcome, latency_ms=2.0, mirrored=agreed is not None, agreed=agreed
    )


def test_calls_of_one_arm_and_epoch_become_one_report() -> None:
    buffer = OutcomeBuffer("g1")
    for outcome in (Outcome.GOOD, Outcome.GOOD, Outcome.WEAK):
        buffer.record(seen(outcome))
    (batch,) = buffer.pending()
    assert batch.outcomes == {Outcome.GOOD: 2, Outcome.WEAK: 1}
    assert (batch.gateway, batch.epoch, batch.arm, batch.latency_ms) == ("g1", 1, Arm.SUBJECT, 6.0)


def test_two_epochs_are_never_mixed() -> None:
    buffer = OutcomeBuffer("g1")
    buffer.record(seen(epoch=1))
    buffer.record(seen(Outcome.WEAK, epoch=2))
    assert [(batch.epoch, batch.outcomes) for batch in buffer.pending()] == [
        (1, {Outcome.GOOD: 1}),
        (2, {Outcome.WEAK: 1}),
    ]


def test_mirrored_calls_are_reported_apart_with_their_agreement() -> None:
    buffer = OutcomeBuffer("g1")
    buffer.record(seen())
    for agreed in (True, True, False):
        buffer.record(seen(agreed=agreed))
    live, mirrored = buffer.pending()
    assert (live.mirrored, live.compared) == (False, 0)
    assert (mirrored.mirrored, mirrored.agree, mirrored.compared) == (True, 2, 3)


def test_a_report_that_did_not_arrive_is_sent_again_under_its_old_number() -> None:
    buffer = OutcomeBuffer("g1")
    buffer.record(seen())
    first = buffer.pending()
    buffer.record(seen(Outcome.ERROR))
    second = buffer.pending()
    assert second[0] == first[0]
    assert [batch.sequence for batch in second] == [1, 2]


def test_a_report_that_arrived_is_not_sent_again() -> None:
    buffer = OutcomeBuffer("g1")
    buffer.record(seen())
    buffer.arrived(buffer.pending())
    assert buffer.pending() == ()


def test_what_is_counted_while_a_report_travels_is_kept() -> None:
    buffer = OutcomeBuffer("g1")
    buffer.record(seen())
    travelling = buffer.pending()
    buffer.record(seen(Outcome.LATE))
    buffer.arrived(travelling)
    (batch,) = buffer.pending()
    assert batch.outcomes == {Outcome.LATE: 1}


def test_a_controller_that_stays_away_costs_a_bounded_amount_of_memory() -> None:
    buffer = OutcomeBuffer("g1", max_unsent=3)
    for epoch in range(10):
        buffer.record(seen(epoch=epoch))
        buffer.pending()
    assert [batch.epoch for batch in buffer.pending()] == [7, 8, 9]
    assert buffer.given_up == 7


def test_a_buffer_that_could_hold_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_unsent is 0"):
        OutcomeBuffer("g1", max_unsent=0)


def of(caller: int | None, outcome: Outcome = Outcome.GOOD) -> Seen:
    return Seen(epoch=1, arm=Arm.SUBJECT, outcome=outcome, latency_ms=2.0, caller=caller)


def test_only_callers_who_brought_something_bad_lately_are_reported_apart() -> None:
    buffer = OutcomeBuffer("g1")
    for call in (of(1), of(2, Outcome.WEAK), of(2), of(None, Outcome.WEAK)):
        buffer.record(call)
    buffer.record(of(3), slow=True)
    (batch,) = buffer.pending()
    assert {caller: batch.part(caller) for caller in batch.callers} == {
        2: {Outcome.WEAK: 1, Outcome.GOOD: 1},
        3: {Outcome.GOOD: 1},
    }
    assert batch.without(batch.callers) == {Outcome.GOOD: 1, Outcome.WEAK: 1}
    assert (batch.slow, batch.timed) == (1, 1)
    assert batch.timed_calls() == {(True, 3): 1}


def test_a_caller_is_told_apart_also_in_the_reports_after_its_bad_ones() -> None:
    buffer = OutcomeBuffer("g1")
    buffer.record(of(2, Outcome.WEAK))
    buffer.arrived(buffer.pending())
    buffer.record(of(2))
    (batch,) = buffer.pending()
    assert batch.part(2) == {Outcome.GOOD: 1}


def test_however_many_callers_go_bad_a_report_stays_small() -> None:
    buffer = OutcomeBuffer("g1")
    apart: set[int] = set()
    for outcome in (Outcome.WEAK, Outcome.GOOD, Outcome.SHED):
        for caller in range(1000):
            buffer.record(of(caller, outcome))
        batches = buffer.pending()
        apart = set(batches[0].callers)
        assert len(apart) <= 16
        assert sum(batches[0].outcomes.values()) == 1000
        buffer.arrived(batches)
    assert apart == set(range(984, 1000)), "load that is shed is nobody's fault"
