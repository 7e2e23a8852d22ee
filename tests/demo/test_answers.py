"""What a client saw adds up to honest numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from failsoft.demo.answers import Seen, percentile, phase_numbers, stage_timeline


def seen(at_s: float, **changes: Any) -> Seen:
    usual = Seen(
        sent_s=at_s,
        latency_ms=10.0,
        status=200,
        phase="healthy",
        source="primary",
        stage="serving",
        epoch=1,
        confidence=0.9,
        intent="play",
        expected="play",
    )
    return replace(usual, **changes)


def test_a_request_without_a_200_is_lost_and_never_right() -> None:
    answer = seen(0.0, status=503, source=None)
    assert answer.lost
    assert not answer.right


def test_a_phase_nobody_asked_in_has_no_numbers() -> None:
    assert phase_numbers("incident", [seen(0.0)]) is None


def test_shares_by_source_count_lost_requests_in_the_denominator() -> None:
    answers = [seen(0.0), seen(1.0, source="gbdt"), seen(2.0, status=0, source=None), seen(3.0)]
    numbers = phase_numbers("healthy", answers)
    assert numbers is not None
    assert numbers.sources == {"primary": 0.5, "gbdt": 0.25}
    assert numbers.lost == 1
    assert numbers.right_fraction == 0.75


def test_mean_confidence_rests_on_what_the_model_itself_said_used_or_refused() -> None:
    answers = [
        seen(0.0, confidence=0.8),
        seen(1.0, source="gbdt", confidence=0.9, refused_confidence=0.2),
        seen(2.0, source="gbdt", confidence=0.9),
    ]
    numbers = phase_numbers("healthy", answers)
    assert numbers is not None
    assert numbers.mean_confidence == 0.5


def test_a_late_answer_of_an_older_plan_never_sets_the_stage_back() -> None:
    answers = [
        seen(0.0),
        seen(1.0, stage="degraded", epoch=2),
        seen(1.1, stage="serving", epoch=1, latency_ms=500.0),
        seen(2.0, stage="shadow", epoch=3),
    ]
    assert [stage for _, stage in stage_timeline(answers)] == ["serving", "degraded", "shadow"]


def test_a_replica_that_trips_by_itself_does_not_make_the_stages_flap() -> None:
    answers = [seen(0.0), seen(1.0, stage="degraded"), seen(1.1), seen(1.2, stage="degraded"), seen(1.3)]
    assert stage_timeline(answers) == [(0.0, "serving"), (1.0, "degraded")]


@pytest.mark.parametrize(("share", "expected"), [(0.0, 1.0), (0.5, 3.0), (0.99, 4.0)])
def test_percentile_takes_a_value_that_occurred(share: float, expected: float) -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0], share) == expected


def test_no_values_have_no_percentile() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)
