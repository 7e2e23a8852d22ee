"""Judgements over what a release says of itself; on loaded releases they are tried in test_inspect."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from failsoft.artifacts.bundle import Baseline
from failsoft.release.policy import GatePolicy
from failsoft.release.record_gates import Right, judge_baseline, judge_fallback_right, judge_fallback_task, judge_slots

POLICY = GatePolicy()
HEALTHY = Baseline(
    samples=400,
    weak_fraction=0.02,
    entropy_mean=0.1,
    entropy_std=0.2,
    logit_std=3.0,
    oov_fraction=0.05,
    label_mix={"a": 0.5, "b": 0.5},
)


@pytest.mark.parametrize(
    ("same", "narrow", "passes"),
    [(1000, False, True), (995, False, True), (994, False, False), (990, True, True), (970, True, False)],
)
def test_slots_must_be_those_of_training(same: int, narrow: bool, passes: bool) -> None:
    recorded = [(("city", str(number)),) for number in range(1000)]
    now = [(("city", str(number)),) if number < same else () for number in range(1000)]
    assert judge_slots(recorded, now, POLICY, narrow=narrow).passed is passes


def test_no_text_has_no_slots_and_texts_without_any_agree() -> None:
    assert not judge_slots([], [], POLICY, narrow=False).passed
    assert judge_slots([(), ()], [(), ()], POLICY, narrow=False).passed
    assert not judge_slots([(), ()], [(("city", "x"),), ()], POLICY, narrow=False).passed


@pytest.mark.parametrize("value", [0.1, math.nan, math.inf, -5.0])
def test_a_number_that_moved_or_is_none_fails_and_is_named(value: float) -> None:
    result = judge_baseline(replace(HEALTHY, weak_fraction=value), HEALTHY, POLICY)
    assert not result.passed
    assert "weak fraction" in result.why


def test_what_an_older_release_did_not_record_is_passed_over() -> None:
    assert judge_baseline(HEALTHY, replace(HEALTHY, words_mean=8.0, accuracy=0.9), POLICY).passed


def test_a_fallback_without_answers_or_no_better_than_guesses_fails() -> None:
    assert judge_fallback_right([Right(part="trees", right=90, answered=100)], 0.1).passed
    assert not judge_fallback_right([Right(part="trees", right=9, answered=100)], 0.1).passed
    assert not judge_fallback_right([Right(part="trees", right=0, answered=0)], 0.1).passed
    assert not judge_fallback_right([], 0.1).passed
    assert not judge_fallback_task([], []).passed
