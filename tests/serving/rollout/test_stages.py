from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from failsoft.errors import ConfigError, IllegalMoveError
from failsoft.health.lifecycle import Lifecycle
from failsoft.health.monitor import HealthMonitor, HealthPolicy, Status, Verdict
from failsoft.health.sequential import Tally
from failsoft.health.window import Outcome
from failsoft.serving.plan.plan import Colour, Stage
from failsoft.serving.rollout.judgement import Action, Evidence, answers_to_compare, in_words, judge_stage
from failsoft.serving.rollout.shaping import mirror_share_wanted, ready_fraction, ready_fractions
from failsoft.serving.rollout.stages import MOVES, NEXT, ON_TRIAL, StagePolicy, stage_policy
from tests.serving.worlds import quick_policy

POLICY = quick_policy()
HEALTHY = Verdict(status=Status.HEALTHY, bad=1, total=100, consecutive_bad=0, warning=False, policy=HealthPolicy())


def evidence(stage: Stage = Stage.CANARY, **changes: Any) -> Evidence:
    """Everything is met, unless changed."""
    met: dict[str, Any] = {
        "stage": stage,
        "in_stage": Tally(bad=2, total=200),
        "on_trial": Tally(bad=4, total=400),
        "stand_in": Tally(bad=40, total=4000),
        "healthy_bad_fraction": 0.02,
        "active_s": 301.0,
        "since_answer_s": 0.1,
        "verdict": HEALTHY,
        "ready_fraction": 1.0,
    }
    return Evidence(**(met | changes))


@pytest.mark.parametrize(("before", "after"), list(product(Stage, Stage)))
def test_only_listed_moves_happen(before: Stage, after: Stage) -> None:
    life = Lifecycle(MOVES, before)
    if after in MOVES[before]:
        life.move(after, why="listed")
        assert life.state is after
    else:
        with pytest.raises(IllegalMoveError):
            life.move(after, why="unlisted")
        assert life.state is before


def test_no_stage_is_skipped_on_the_way_up() -> None:
    order = [Stage.SHADOW, Stage.CANARY, Stage.RAMP_20, Stage.RAMP_50, Stage.SERVING]
    for low, high in product(range(len(order)), range(len(order))):
        if high > low + 1:
            assert order[high] not in MOVES[order[low]]


def test_every_stage_in_which_callers_or_copies_are_answered_can_fall() -> None:
    assert all(Stage.DEGRADED in MOVES[stage] for stage in ON_TRIAL | {Stage.SERVING})


@pytest.mark.parametrize("stage", sorted(ON_TRIAL))
def test_a_stage_passes_when_all_conditions_are_met(stage: Stage) -> None:
    assert judge_stage(evidence(stage), POLICY).action is Action.ADVANCE


def test_a_pass_says_its_numbers() -> None:
    why = judge_stage(evidence(in_stage=Tally(bad=5, total=412)), POLICY).why
    assert why == (
        "412 answers in 301 s, 1.2 % weak against 1.0 % of 4000 of the stand-in, e-value 6e-05 of being worse"
    )


@pytest.mark.parametrize(("bad", "proof"), [(5, False), (40, True)])
def test_the_e_value_in_the_words_is_proof_only_of_what_is_really_worse(bad: int, proof: bool) -> None:
    words = in_words(evidence(in_stage=Tally(bad=bad, total=412)))
    e_value = float(words.partition("e-value ")[2].split()[0])
    assert (e_value >= 1 / POLICY.alpha) is proof


def test_an_unknown_baseline_has_no_e_value() -> None:
    words = in_words(evidence(stand_in=None, healthy_bad_fraction=math.nan))
    assert "e-value" not in words
    assert "e-value" not in in_words(evidence(stand_in=None, healthy_bad_fraction=None))


def test_as_many_answers_as_are_said_to_be_needed_decide_and_one_less_does_not() -> None:
    for stand_in, baseline in ((Tally(bad=40, total=4000), None), (None, 0.02)):
        asked = evidence(stand_in=stand_in, healthy_bad_fraction=baseline)
        needed = answers_to_compare(asked, POLICY)
        assert needed is not None
        for total, action in ((needed, Action.ADVANCE), (needed - 1, Action.HOLD)):
            tally = Tally(bad=math.ceil((0.01 if stand_in else 0.02) * total), total=total)
            known = evidence(on_trial=tally, stand_in=stand_in, healthy_bad_fraction=baseline)
            assert judge_stage(known, POLICY).action is action


@pytest.mark.parametrize("changes", [{"stand_in": Tally(bad=1, total=5)}, {"stand_in": None}])
def test_too_little_known_of_what_stands_in_has_no_number_of_answers_that_would_do(changes: dict[str, Any]) -> None:
    assert answers_to_compare(evidence(healthy_bad_fraction=None, **changes), POLICY) is None


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"since_answer_s": None}, "no answer of the subject"),
        ({"since_answer_s": 2.1}, "no answer for 2.1 s"),
        ({"since_answer_s": math.nan}, "no answer"),
        ({"in_stage": Tally(bad=0, total=19)}, "19 of 20 answers"),
        ({"active_s": 4.9}, "of 5 s"),
        ({"active_s": math.nan}, "of 5 s"),
        ({"verdict": HEALTHY._replace(status=Status.NO_VERDICT, total=3)}, "only 3"),
        ({"stand_in": Tally(bad=0, total=0)}, "undecided"),
        ({"on_trial": Tally(bad=0, total=5)}, "undecided"),
        ({"stand_in": None, "healthy_bad_fraction": None}, "unknown baseline"),
        ({"stand_in": None, "healthy_bad_fraction": math.nan}, "undecided"),
        ({"stand_in": None, "healthy_bad_fraction": math.inf}, "undecided"),
        ({"stand_in": None, "healthy_bad_fraction": -1.0}, "undecided"),
        ({"ready_fraction": None}, "not known"),
        ({"ready_fraction": math.nan}, "replicas"),
        ({"ready_fraction": 0.1}, "10% of the replicas"),
    ],
)
@pytest.mark.parametrize("stage", [Stage.CANARY])
def test_whatever_is_missing_or_no_number_holds(stage: Stage, changes: dict[str, Any], says: str) -> None:
    decision = judge_stage(evidence(stage, **changes), POLICY)
    assert decision.action is Action.HOLD
    assert says in decision.why


def test_no_evidence_at_all_holds() -> None:
    nothing = Tally(bad=0, total=0)
    verdict = HealthMonitor(policy=POLICY.health).verdict()
    empty = evidence(
        in_stage=nothing, on_trial=nothing, stand_in=None, active_s=0.0, since_answer_s=None, verdict=verdict
    )
    assert judge_stage(empty, POLICY).action is Action.HOLD


def test_a_source_of_nothing_but_errors_never_passes() -> None:
    monitor = HealthMonitor(policy=POLICY.health)
    for _ in range(200):
        monitor.record(Outcome.ERROR)
    all_bad = Tally(bad=200, total=200)
    for stage in Stage:
        failing = evidence(stage, in_stage=all_bad, on_trial=all_bad, verdict=monitor.verdict())
        assert judge_stage(failing, POLICY).action is Action.TRIP


def test_seven_good_points_of_ten_do_not_pass_three_that_are_a_hundred_times_worse() -> None:
    series = evidence(in_stage=Tally(bad=30, total=100), on_trial=Tally(bad=30, total=100))
    assert judge_stage(series, POLICY).action is Action.TRIP


def test_a_subject_that_is_surely_worse_than_its_stand_in_falls_before_the_window_trips() -> None:
    worse = Tally(bad=190, total=1000)
    decision = judge_stage(evidence(in_stage=worse, on_trial=worse), replace(POLICY, margin=0.1, rules=_wide()))
    assert decision.action is Action.TRIP
    assert "surely worse" in decision.why


def _wide() -> dict[Stage, Any]:
    return {**POLICY.rules, Stage.SHADOW: replace(POLICY.rules[Stage.SHADOW], min_samples=150)}


@pytest.mark.parametrize("stage", [Stage.SERVING, Stage.DEGRADED, Stage.REJECTED])
def test_stages_without_a_trial_never_advance(stage: Stage) -> None:
    assert judge_stage(evidence(stage), POLICY).action is Action.HOLD
    assert stage not in NEXT


@pytest.mark.parametrize("profile", ["production", "drill"])
def test_the_named_profiles_can_be_passed(profile: str) -> None:
    policy = stage_policy(profile)
    assert policy.rules[Stage.SHADOW].share == 0.0
    assert [policy.share_of(stage) for stage in NEXT.values()] == [0.05, 0.2, 0.5, 1.0]


def test_production_is_15_minutes_of_shadow_at_1_percent_and_rests_60_s_to_an_hour() -> None:
    policy = stage_policy("production")
    assert (policy.rules[Stage.SHADOW].min_time_s, policy.mirror_share) == (900.0, 0.01)
    assert (policy.rest.first_s, policy.rest.factor, policy.rest.cap_s) == (60.0, 2.0, 3600.0)


def _rule(stage: Stage, **changes: Any) -> dict[str, Any]:
    return {"rules": {**POLICY.rules, stage: replace(POLICY.rules[stage], **changes)}}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"rules": {}}, "exactly one for each"),
        (_rule(Stage.SHADOW, share=0.01), "SHADOW has 0"),
        (_rule(Stage.RAMP_20, share=0.6), "more than the one before"),
        ({"mirror_share": 0.0}, "needs copies"),
        ({"mirror_share": math.nan}, "needs copies"),
        ({"quiet_s": 0.0}, "more than 0 s"),
        ({"max_gap_s": math.nan}, "more than 0 s"),
        ({"margin": 0.0}, "strictly between"),
        ({"alpha": 1.0}, "strictly between"),
        ({"margin": 0.01}, "only with"),
        (_rule(Stage.SHADOW, min_samples=10), "raise min_samples"),
        ({"reject_after": 0}, "at least once"),
    ],
)
def test_a_policy_that_could_never_pass_or_always_would_is_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        replace(POLICY, **changes)


@pytest.mark.parametrize("changes", [{"share": 1.0}, {"share": math.nan}, {"min_time_s": 0.0}, {"min_samples": 0}])
def test_a_stage_that_anything_would_pass_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        replace(POLICY.rules[Stage.CANARY], **changes)


def test_an_unknown_profile_is_refused() -> None:
    with pytest.raises(ConfigError, match="no profile"):
        stage_policy("prod")


def test_thin_traffic_raises_the_share_of_copies_to_what_the_stage_needs() -> None:
    production = StagePolicy()  # needs 450 copies in 900 s
    wanted = mirror_share_wanted(0.01, samples=10, elapsed_s=200.0, policy=production)
    assert wanted == pytest.approx(0.01 * 1.2 * 0.5 / 0.05)
    assert mirror_share_wanted(0.01, samples=5, elapsed_s=179.0, policy=production) == 0.01
    assert mirror_share_wanted(0.01, samples=75, elapsed_s=200.0, policy=production) == 0.01
    assert mirror_share_wanted(0.9, samples=1, elapsed_s=200.0, policy=production) == 1.0
    assert mirror_share_wanted(0.01, samples=0, elapsed_s=899.0, policy=production) == 0.01
    assert mirror_share_wanted(0.01, samples=0, elapsed_s=901.0, policy=production) == 0.02
    assert mirror_share_wanted(1.0, samples=0, elapsed_s=9000.0, policy=production) == 1.0


@pytest.mark.parametrize(
    ("states", "fraction"),
    [
        ({"RUNNING": 2}, 1.0),
        ({"RUNNING": 1, "STARTING": 1}, 0.5),
        ({"RUNNING": 1, "STOPPING": 1}, 1.0),
        ({"STARTING": 1}, 0.0),
        ({}, None),
    ],
)
def test_ready_replicas_are_counted_among_those_that_stay(states: dict[str, int], fraction: float | None) -> None:
    assert ready_fraction(states) == fraction


def test_of_two_apps_on_one_cluster_the_smaller_share_of_ready_replicas_counts() -> None:
    half, all_run = {"RUNNING": 1, "STARTING": 1}, {"RUNNING": 2}
    for apps in ([half, all_run], [all_run, half]):
        assert ready_fractions([(Colour.BLUE, states) for states in apps]) == {Colour.BLUE: 0.5}
    assert ready_fractions([(Colour.BLUE, all_run), (Colour.GREEN, {})]) == {Colour.BLUE: 1.0}
