from __future__ import annotations

import io
import json
import math

import pytest
from rich.console import Console

from failsoft.artifacts.bundle import Golden
from failsoft.errors import ConfigError, DamagedArtifactError, GateError
from failsoft.health.monitor import HealthPolicy, armed_policy
from failsoft.models.narrow import Width
from failsoft.release.coverage import Coverage, Recurring, Rise
from failsoft.release.coverage_gates import (
    judge_known_floor,
    judge_known_kept,
    judge_readable,
    judge_recurring,
    judge_rise,
    judge_types_kept,
)
from failsoft.release.divergence import Divergence
from failsoft.release.gates import (
    judge_against_fallback,
    judge_deviation,
    judge_divergence,
    judge_golden,
    judge_not_flatter,
    judge_same_answers,
    judge_weak,
    judge_weights,
    not_measured,
)
from failsoft.release.policy import GatePolicy
from failsoft.release.report import GateReport, GateResult, print_report
from failsoft.release.spread import Deviation, Share

POLICY = GatePolicy()
GOOD = GateResult(name="a gate", passed=True, value=1.0, limit=2.0, why="fine")
BAD = GateResult(name="another", passed=False, value=math.nan, limit=2.0, why="no number")


def coverage(readable: float, known: float = 0.95, texts: int = 500) -> Coverage:
    return Coverage(
        texts=texts,
        words=texts * 9,
        readable_fraction=max(readable, 0.999),
        readable_low=readable,
        known_fraction=known,
        empty_texts=0,
        different_texts=texts,
    )


def deviation(value: float, low: float, high: float, samples: int = 500) -> Deviation:
    return Deviation(name="entropy_mean", value=value, low=low, high=high, samples=samples)


def recurring(low: float) -> Recurring:
    return Recurring(value=max(low, 0.999), low=low, types=300, uses=4000, unknown=())


@pytest.mark.parametrize(("low", "passes"), [(1.0, True), (0.9951, True), (0.995, False), (0.9, False)])
def test_more_than_99_5_percent_of_what_comes_back_must_be_known(low: float, passes: bool) -> None:
    assert judge_recurring(recurring(low), 500, POLICY, of="traffic").passed is passes
    assert not judge_recurring(recurring(low), 99, POLICY, of="traffic").passed


@pytest.mark.parametrize(("high", "passes"), [(-0.1, True), (0.05, True), (0.051, False)])
def test_at_most_five_points_more_may_be_unknown_for_the_whole_interval(high: float, passes: bool) -> None:
    rise = Rise(value=min(high, 0.04), low=-0.2, high=high, own=0.05)
    assert judge_rise(rise, 500, POLICY).passed is passes
    assert ("undecided" in judge_rise(rise, 500, POLICY).why) is not passes


@pytest.mark.parametrize(("readable", "passes"), [(1.0, True), (0.9951, True), (0.995, False), (0.9, False)])
def test_more_than_99_5_percent_must_be_readable(readable: float, passes: bool) -> None:
    assert judge_readable(coverage(readable), POLICY, of="traffic").passed is passes


@pytest.mark.parametrize(
    ("value", "low", "high", "samples", "passes"),
    [
        (0.0, 0.0, 0.0, 500, True),
        (0.14, 0.13, 0.15, 500, True),
        (-0.14, -0.15, -0.13, 500, True),
        (0.14, 0.12, 0.16, 500, False),
        (-0.14, -0.16, -0.12, 500, False),
        (0.0, -0.2, 0.2, 500, False),
        (0.5, 0.4, 0.6, 500, False),
        (0.0, 0.0, 0.0, 99, False),
        (math.nan, math.nan, math.nan, 500, False),
        (math.inf, math.inf, math.inf, 500, False),
    ],
)
def test_the_whole_interval_must_lie_within_15_percent(
    value: float, low: float, high: float, samples: int, passes: bool
) -> None:
    assert judge_deviation(deviation(value, low, high, samples), POLICY, against="x").passed is passes


@pytest.mark.parametrize(
    ("name", "low", "high", "passes"),
    [
        ("logit_std", -0.15, 3.0, True),
        ("logit_std", -0.16, 0.0, False),
        ("entropy_mean", -0.9, 0.5, True),
        ("entropy_mean", 0.0, 0.51, False),
    ],
)
def test_only_flatter_answers_count_against_a_retrained_model(name: str, low: float, high: float, passes: bool) -> None:
    found = Deviation(name=name, value=(low + high) / 2, low=low, high=high, samples=500)
    assert judge_not_flatter(found, POLICY, against="in release r").passed is passes


def test_an_undecided_deviation_says_so() -> None:
    assert "undecided" in judge_deviation(deviation(0.1, -0.1, 0.3), POLICY, against="x").why


@pytest.mark.parametrize(
    ("mean", "maximum", "passes"),
    [
        (1e-4, 0.019, True),
        (1e-4, 0.02, False),
        (0.03, 0.03, False),
        (math.nan, math.nan, False),
        (0.0, math.inf, False),
    ],
)
def test_both_mean_and_maximum_kl_are_held_to_the_limit(mean: float, maximum: float, passes: bool) -> None:
    found = judge_divergence(Divergence(mean=mean, maximum=maximum, count=9), Width.INT8, POLICY, head="intent")
    assert found.passed is passes


def test_no_missing_measurement_passes_any_gate() -> None:
    nan = math.nan
    results = [
        judge_readable(coverage(nan), POLICY, of="validation"),
        judge_known_floor(coverage(1.0, nan), POLICY),
        judge_known_kept(coverage(1.0, nan), 0.05, POLICY),
        judge_known_kept(coverage(1.0, 0.95), nan, POLICY),
        judge_known_kept(coverage(1.0, 0.0), 1.0, POLICY),
        judge_recurring(recurring(nan), 500, POLICY, of="traffic"),
        judge_rise(Rise(value=nan, low=nan, high=nan, own=nan), 500, POLICY),
        judge_types_kept(nan, 0.9, POLICY),
        judge_types_kept(0.9, None, POLICY),
        judge_divergence(Divergence(mean=0.0, maximum=0.0, count=0), Width.BF16, POLICY, head="slot"),
        judge_same_answers(Divergence(mean=nan, maximum=nan, count=9), POLICY),
        judge_not_flatter(deviation(nan, nan, nan), POLICY, against="x"),
        judge_weak(Share(value=nan, low=nan, high=nan, texts=500), POLICY),
        judge_against_fallback(Share(value=nan, low=nan, high=nan, texts=500), POLICY),
        judge_weights([], 0),
        judge_golden([], [], POLICY),
        not_measured("anything", "it was not there"),
    ]
    assert not any(result.passed for result in results)


def test_serving_can_arm_its_monitor_with_any_release_that_passes() -> None:
    armed_policy(HealthPolicy(), POLICY.max_weak_fraction)
    with pytest.raises(ConfigError):
        armed_policy(HealthPolicy(), POLICY.max_weak_fraction + 0.01)


@pytest.mark.parametrize(
    ("weak", "texts", "passes"), [(0.0, 500, True), (0.07, 500, True), (0.08, 500, False), (0.0, 50, False)]
)
def test_a_release_that_is_unsure_too_often_fails(weak: float, texts: int, passes: bool) -> None:
    assert judge_weak(Share(value=weak, low=weak, high=weak, texts=texts), POLICY).passed is passes


@pytest.mark.parametrize(
    ("value", "low", "passes"), [(0.01, 0.0, True), (0.0, -0.02, True), (0.0, -0.03, False), (-0.2, -0.25, False)]
)
def test_a_model_that_is_worse_than_its_fallback_fails(value: float, low: float, passes: bool) -> None:
    assert judge_against_fallback(Share(value=value, low=low, high=0.3, texts=500), POLICY).passed is passes


def test_a_caller_s_text_in_a_reason_is_printed_and_not_obeyed() -> None:
    out = io.StringIO()
    why = "first: '[/red] [bold]hi' was greet"
    bad = GateResult(name="golden inputs", passed=False, value=1.0, limit=0.0, why=why)
    print_report(GateReport(release="r[1]", results=(bad,)), Console(file=out, width=150))
    assert why in out.getvalue()


def test_a_vocabulary_that_serving_lost_fails() -> None:
    assert judge_known_kept(coverage(1.0, 0.95), 0.05, POLICY).passed
    assert not judge_known_kept(coverage(1.0, 0.94), 0.05, POLICY).passed


def test_weights_that_are_not_finite_are_named() -> None:
    found = judge_weights(["words.weight"], 20)
    assert not found.passed
    assert "words.weight" in found.why


@pytest.mark.parametrize(
    ("now", "passes"),
    [
        (Golden(text="hi", intent="greet", confidence=0.9), True),
        (Golden(text="hi", intent="greet", confidence=0.905), True),
        (Golden(text="hi", intent="greet", confidence=0.8), False),
        (Golden(text="hi", intent="leave", confidence=0.9), False),
        (Golden(text="ho", intent="greet", confidence=0.9), False),
        (Golden(text="hi", intent="greet", confidence=math.nan), False),
    ],
)
def test_a_golden_input_must_be_answered_as_recorded(now: Golden, passes: bool) -> None:
    assert judge_golden([Golden(text="hi", intent="greet", confidence=0.9)], [now], POLICY).passed is passes


def test_a_report_without_any_gate_does_not_pass() -> None:
    assert not GateReport(release="r", results=()).passed


def test_one_failed_gate_fails_the_release_and_the_error_names_it_and_the_mend() -> None:
    report = GateReport(release="r-1", results=(GOOD, BAD))
    with pytest.raises(GateError, match=r"r-1 failed 1 of 2 gates: another: no number\. Look here"):
        report.raise_unless_passed("Look here")


def test_a_report_survives_json_and_nan_becomes_null() -> None:
    report = GateReport(release="r-1", results=(GOOD, BAD))
    assert json.loads(report.to_json())["results"][1]["value"] is None
    again = GateReport.from_json(report.to_json())
    assert (again.passed, again.failures[0].name, again.results[0]) == (False, "another", GOOD)


@pytest.mark.parametrize("text", ["", "{}", '{"release": "r", "results": [{"name": 1}]}'])
def test_what_is_no_report_is_refused(text: str) -> None:
    with pytest.raises(DamagedArtifactError, match="failsoft gate"):
        GateReport.from_json(text)


def test_the_printed_report_shows_each_gate_and_the_verdict() -> None:
    out = io.StringIO()
    print_report(GateReport(release="r-1", results=(GOOD, BAD)), Console(file=out, width=120))
    text = out.getvalue()
    assert "a gate" in text
    assert "FAIL" in text
    assert "1 of 2 gates failed" in text


@pytest.mark.parametrize(
    "setting",
    [
        {"min_readable_fraction": 1.0},
        {"min_known_fraction": 0.0},
        {"max_deviation": 0.0},
        {"max_kl": math.nan},
        {"max_golden_shift": math.nan},
        {"max_weak_fraction": 2.0},
        {"max_accuracy_behind_fallback": 1.0},
        {"min_samples": 1},
    ],
)
def test_limits_that_mean_nothing_are_refused(setting: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        GatePolicy(**setting)  # type: ignore[arg-type]
