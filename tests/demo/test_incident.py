"""The cost of an incident is counted from its first bad answer."""

from __future__ import annotations

from failsoft.demo.incident import incident_numbers
from tests.demo.test_answers import seen


def test_times_run_from_the_first_bad_answer_to_the_last_answer_under_the_old_plan() -> None:
    answers = [
        seen(0.0),
        seen(1.0),
        seen(1.2, source="gbdt", degrade_reason="confidence 0.31"),
        seen(1.3, intent="stop"),
        seen(1.5, source="gbdt", degrade_reason="confidence 0.31"),
        seen(1.6, stage="degraded", epoch=1, source="gbdt", degrade_reason="tripped"),
        seen(1.7, source="primary"),
        seen(1.9, stage="degraded", epoch=2, source="gbdt", degrade_reason="tripped"),
    ]
    numbers = incident_numbers(answers, broken_at_s=1.0)
    assert numbers.first_bad_s == 1.2
    assert numbers.until_first_switch_ms is not None
    assert round(numbers.until_first_switch_ms) == 400
    assert numbers.until_last_replica_ms is not None
    assert round(numbers.until_last_replica_ms) == 500
    assert (numbers.model_answers_let_through, numbers.wrong_let_through, numbers.replaced_before_switch) == (2, 1, 2)


def test_an_incident_that_never_tripped_says_so_instead_of_claiming_a_fast_switch() -> None:
    numbers = incident_numbers([seen(0.0, intent="stop")], broken_at_s=0.0)
    assert numbers.until_last_replica_ms is None
    assert numbers.wrong_let_through == 1


def test_a_switch_right_after_the_first_bad_answer_is_counted_too() -> None:
    answers = [
        seen(1.0, source="gbdt", degrade_reason="confidence 0.31", latency_ms=1.0),
        seen(1.001, stage="degraded", source="gbdt", degrade_reason="tripped", latency_ms=2.0),
    ]
    numbers = incident_numbers(answers, broken_at_s=1.0)
    assert numbers.until_last_replica_ms is not None
    assert round(numbers.until_last_replica_ms) == 2


def test_answers_under_the_degraded_plan_are_no_bad_answers_of_the_model() -> None:
    answers = [seen(1.0, stage="degraded", source="gbdt", degrade_reason="tripped")]
    assert incident_numbers(answers, broken_at_s=1.0).first_bad_s is None


def test_a_model_that_had_been_left_for_another_cause_makes_no_switch_before_its_first_bad_answer() -> None:
    answers = [
        seen(1.0, stage="degraded", source="gbdt", degrade_reason="latency"),
        seen(2.0, stage="shadow", epoch=3, source="gbdt", degrade_reason="confidence 0.31"),
    ]
    numbers = incident_numbers(answers, broken_at_s=0.5)
    assert numbers.first_bad_s == 2.0
    assert (numbers.until_first_switch_ms, numbers.until_last_replica_ms) == (None, None)


def test_answers_before_the_fault_count_for_nothing() -> None:
    numbers = incident_numbers([seen(0.0, intent="stop"), seen(2.0)], broken_at_s=1.0)
    assert numbers.first_bad_s is None
