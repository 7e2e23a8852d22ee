"""What a replica says is judged against what training recorded; silence and what is no number fail."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from failsoft.errors import DamagedArtifactError
from failsoft.release.policy import GatePolicy
from failsoft.release.replica import OnlineAnswer, ReplicaReport
from failsoft.release.replica_gates import (
    judge_latency,
    judge_replica,
    judge_same_answers,
    judge_same_ids,
    judge_same_logits,
)

POLICY = GatePolicy()
IDS = tuple((number, 5, 9) for number in range(200))
LOGITS = np.random.default_rng(3).normal(size=(200, 4))
ANSWER = OnlineAnswer(ids=(1,), logits=(0.0,), intent="a", source="model", latency_ms=2.0)
ANSWERS = [replace(ANSWER, ids=ids, logits=tuple(row)) for ids, row in zip(IDS, LOGITS.tolist(), strict=True)]
REPORT = ReplicaReport(answers=tuple(ANSWERS), load_s=1.0, rss_mb=300.0, pid=7)


def changed(count: int, **change: object) -> list[OnlineAnswer]:
    return [replace(answer, **change) if n < count else answer for n, answer in enumerate(ANSWERS)]  # type: ignore[arg-type]


@pytest.mark.parametrize(("other", "passes"), [(0, True), (1, True), (2, False), (200, False)])
def test_word_numbers_must_be_those_of_training_but_for_half_a_percent(other: int, passes: bool) -> None:
    assert judge_same_ids(IDS, changed(other, ids=(8,)), POLICY).passed is passes


def test_a_model_that_was_not_asked_got_no_numbers() -> None:
    found = judge_same_ids(IDS, changed(9, ids=None), POLICY)
    assert not found.passed
    assert "serving nothing" in found.why


@pytest.mark.parametrize(("shift", "passes"), [(0.0, True), (0.005, True), (0.05, False), (math.nan, False)])
def test_logits_must_be_those_of_training(shift: float, passes: bool) -> None:
    moved = [replace(a, logits=tuple(x + shift for x in a.logits or ())) for a in ANSWERS]
    assert judge_same_logits(LOGITS, moved, POLICY).passed is passes


@pytest.mark.parametrize("logits", [(), None, (1.0,)])
def test_logits_that_are_absent_or_of_another_number_fail(logits: tuple[float, ...] | None) -> None:
    assert not judge_same_logits(LOGITS, changed(200, logits=logits), POLICY).passed


@pytest.mark.parametrize(("other", "passes"), [(0, True), (1, True), (2, False)])
def test_callers_must_get_what_training_recorded(other: int, passes: bool) -> None:
    assert judge_same_answers(["a"] * 200, changed(other, intent="b"), POLICY).passed is passes


def test_answers_of_the_fallback_are_not_compared_and_all_of_them_are_no_pass() -> None:
    assert judge_same_answers(["a"] * 200, changed(50, source="rules", intent="b"), POLICY).passed
    assert not judge_same_answers(["a"] * 200, changed(150, source="rules"), POLICY).passed


def test_a_replica_must_answer_everything_and_load_in_time() -> None:
    assert judge_replica(REPORT, 200, POLICY).passed
    assert not judge_replica(REPORT, 201, POLICY).passed
    assert not judge_replica(replace(REPORT, answers=tuple(changed(1, intent=""))), 200, POLICY).passed
    assert not judge_replica(replace(REPORT, load_s=61.0), 200, POLICY).passed
    assert not judge_replica(replace(REPORT, load_s=math.nan), 200, POLICY).passed
    assert not judge_replica(replace(REPORT, answers=()), 0, POLICY).passed


@pytest.mark.parametrize(("slow", "passes"), [(9, True), (20, False), (200, False)])
def test_the_budget_is_held_at_the_95th_percentile(slow: int, passes: bool) -> None:
    assert judge_latency(replace(REPORT, answers=tuple(changed(slow, latency_ms=101.0))), POLICY).passed is passes


def test_few_answers_of_the_model_are_no_latency() -> None:
    assert not judge_latency(replace(REPORT, answers=tuple(changed(150, ids=None))), POLICY).passed


def test_a_report_survives_the_way_between_processes() -> None:
    report = replace(REPORT, answers=(ANSWERS[0], replace(ANSWER, ids=None, logits=None)))
    assert ReplicaReport.from_json(report.to_json()) == report


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 9, "answers": []}', '{"format": 1, "answers": [3]}'])
def test_what_is_no_report_is_refused(text: str) -> None:
    with pytest.raises(DamagedArtifactError):
        ReplicaReport.from_json(text)
