"""Whatever is impossible or unsafe in a stage policy is refused before it leads anybody's traffic, in a sentence."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.errors import ConfigError
from failsoft.health.backoff import BackoffPolicy
from failsoft.health.sequential import Comparison, Tally, compare_with_rate, samples_needed
from failsoft.serving.plan.plan import Stage
from failsoft.serving.rollout.stages import NEXT, StagePolicy, StageRule, stage_policy

POLICY = StagePolicy()
RULE = POLICY.rules[Stage.CANARY]
NO_TIME = st.one_of(st.just(math.nan), st.just(math.inf), st.floats(max_value=0.0))
NO_SHARE = st.one_of(st.just(math.nan), st.floats(max_value=0.0), st.floats(min_value=1.0))
NO_COUNT = st.one_of(st.integers(max_value=0), st.floats().filter(lambda count: not count.is_integer() or count < 1))
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "quiet_s": NO_TIME,
    "max_gap_s": NO_TIME,
    "keep_every_s": NO_TIME,
    "margin": NO_SHARE,
    "alpha": st.one_of(NO_SHARE, st.floats(0.5, 1.0)),
    "mirror_share": NO_SHARE.filter(lambda share: share != 1.0),
    "reject_after": NO_COUNT,
}
RULE_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "min_time_s": NO_TIME,
    "min_samples": NO_COUNT,
    "share": NO_SHARE.filter(lambda share: share != 0.0),
}


def with_shares(shares: tuple[float, ...]) -> dict[Stage, StageRule]:
    return {stage: replace(POLICY.rules[stage], share=share) for stage, share in zip(NEXT, shares, strict=True)}


@pytest.mark.parametrize("name", FIELDS)
@given(data=st.data())
def test_a_policy_with_a_value_that_can_not_be_is_refused_by_name_and_value(name: str, data: st.DataObject) -> None:
    wrong = data.draw(FIELDS[name])
    with pytest.raises(ConfigError) as refused:
        replace(POLICY, **{name: wrong})
    says = str(refused.value)
    assert says.startswith(f"{name} is {wrong}")
    assert len(says) > len(f"{name} is {wrong}; ") + 15  # what would be right follows


@pytest.mark.parametrize("name", RULE_FIELDS)
@given(data=st.data())
def test_a_stage_with_a_value_that_can_not_be_is_refused_by_name_and_value(name: str, data: st.DataObject) -> None:
    wrong = data.draw(RULE_FIELDS[name])
    with pytest.raises(ConfigError) as refused:
        replace(RULE, **{name: wrong})
    assert str(refused.value).startswith(f"{name} is {wrong}; ")


@given(st.tuples(*[st.floats(0.0, 1.0, exclude_max=True)] * 4))
def test_shares_are_taken_exactly_if_they_begin_at_0_and_rise(shares: tuple[float, ...]) -> None:
    rises = shares[0] == 0.0 and shares[0] < shares[1] < shares[2] < shares[3]
    if rises:
        assert [replace(POLICY, rules=with_shares(shares)).share_of(stage) for stage in NEXT] == list(shares)
        return
    with pytest.raises(ConfigError, match="each later stage more than the one before"):
        replace(POLICY, rules=with_shares(shares))


@given(st.sets(st.sampled_from(list(Stage))))
def test_rules_for_other_stages_than_those_on_trial_are_refused(stages: set[Stage]) -> None:
    rules = {stage: POLICY.rules.get(stage, RULE) for stage in stages}
    if stages == set(NEXT):
        assert replace(POLICY, rules=rules) == POLICY
        return
    with pytest.raises(ConfigError, match="exactly one for each"):
        replace(POLICY, rules=rules)


@pytest.mark.parametrize(
    "rest",
    [
        BackoffPolicy(first_s=0.0, cap_s=60.0),
        BackoffPolicy(first_s=60.0, cap_s=math.inf),
        BackoffPolicy(first_s=math.inf, cap_s=math.inf),
    ],
)
def test_no_rest_and_a_rest_without_an_end_are_refused(rest: BackoffPolicy) -> None:
    with pytest.raises(ConfigError, match="rests for some time, above 0 s, and not for ever"):
        replace(POLICY, rest=rest)


def test_a_silence_as_long_as_a_stage_is_refused_for_two_answers_would_fill_it() -> None:
    assert replace(POLICY, max_gap_s=300.0).max_gap_s == 300.0
    with pytest.raises(ConfigError, match="two answers would fill it"):
        replace(POLICY, max_gap_s=300.1)


def test_a_margin_that_nothing_could_exceed_is_refused() -> None:
    healthy = POLICY.health.ruled_out_bad_fraction
    everything = 1.0 - healthy
    nothing_known = Tally(bad=0, total=0)
    passed = compare_with_rate(nothing_known, healthy, margin=everything, alpha=POLICY.alpha)
    assert passed is Comparison.NOT_WORSE  # so it must never get that far
    with pytest.raises(ConfigError, match="nothing is worse by that"):
        replace(POLICY, margin=everything)


@given(margin=st.floats(0.001, 0.999), alpha=st.floats(0.001, 0.499), samples=st.integers(1, 5_000))
def test_what_is_taken_can_be_decided_by_shadows_own_answers(margin: float, alpha: float, samples: int) -> None:
    rules = {**POLICY.rules, Stage.SHADOW: replace(POLICY.rules[Stage.SHADOW], min_samples=samples)}
    healthy = POLICY.health.ruled_out_bad_fraction
    try:
        replace(POLICY, margin=margin, alpha=alpha, rules=rules)
    except ConfigError:
        assert samples_needed(healthy, margin=margin, alpha=alpha) > samples or margin + healthy >= 1.0
    else:
        assert samples_needed(healthy, margin=margin, alpha=alpha) <= samples


@pytest.mark.parametrize("profile", ["production", "by-hand", "drill"])
def test_the_profiles_that_there_are_pass_all_this(profile: str) -> None:
    assert stage_policy(profile) == replace(stage_policy(profile))
