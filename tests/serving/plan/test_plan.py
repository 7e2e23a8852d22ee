from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.errors import ConfigError
from failsoft.serving.plan.plan import Arm, Colour, RoutingPlan, Stage, choose_arm, should_mirror

KEYS = [f"caller-{number}" for number in range(100_000)]


def plan(share: float = 0.0, *, stage: Stage = Stage.RAMP_20, release: str = "r2", mirror: float = 0.0) -> RoutingPlan:
    return RoutingPlan(
        epoch=7,
        stage=stage,
        subject=Colour.GREEN,
        stand_in=Colour.BLUE,
        releases={Colour.BLUE: "r1", Colour.GREEN: release},
        load_generation={Colour.BLUE: 1, Colour.GREEN: 3},
        share=share,
        mirror_share=mirror,
        relapses=2,
        why="as tested",
    )


_seen: dict[tuple[float, str, Stage], frozenset[str]] = {}


def subjects(given_plan: RoutingPlan) -> frozenset[str]:
    """The callers that get the subject; each plan's are worked out once."""
    name = (given_plan.share, given_plan.subject_release, given_plan.stage)
    if name not in _seen:
        _seen[name] = frozenset(key for key in KEYS if choose_arm(given_plan, key) is Arm.SUBJECT)
    return _seen[name]


@pytest.mark.parametrize("share", [0.01, 0.05, 0.2, 0.5])
def test_shares_of_100_000_keys_are_within_3_standard_errors(share: float) -> None:
    spread = math.sqrt(share * (1 - share) / len(KEYS))
    assert abs(len(subjects(plan(share))) / len(KEYS) - share) < 3 * spread
    copied = sum(should_mirror(plan(mirror=share, stage=Stage.SHADOW), key) for key in KEYS)
    assert abs(copied / len(KEYS) - share) < 3 * spread


def test_100_000_keys_fill_the_steps_of_the_ramp_in_proportion() -> None:
    up = [0, *(len(subjects(plan(share))) for share in (0.05, 0.2, 0.5)), len(KEYS)]
    found = [high - low for low, high in pairwise(up)]
    expected = [len(KEYS) * share for share in (0.05, 0.15, 0.3, 0.5)]
    chi_squared = sum((count - due) ** 2 / due for count, due in zip(found, expected, strict=True))
    assert chi_squared < 16.3  # 3 degrees of freedom, exceeded by chance once in 1,000


def test_a_session_never_hops_inside_a_stage_and_moves_only_one_way_up_the_ramp() -> None:
    up = [subjects(plan(share)) for share in (0.05, 0.2, 0.5, 1.0 - 1e-12)]
    assert all(low <= high for low, high in pairwise(up))
    again = replace(plan(0.2), epoch=99, why="another plan of the same stage")
    assert {key for key in KEYS if choose_arm(again, key) is Arm.SUBJECT} == up[1]


def test_all_sessions_leave_at_once_when_the_share_is_0_and_none_is_left_out_at_1() -> None:
    assert not subjects(plan(0.0))
    assert len(subjects(plan(1.0, stage=Stage.SERVING))) == len(KEYS)


def test_copies_are_chosen_independently_of_the_arm() -> None:
    both = sum(should_mirror(plan(0.2, mirror=0.5), key) for key in subjects(plan(0.2)))
    assert abs(both / len(subjects(plan(0.2))) - 0.5) < 0.02


def test_another_release_meets_other_callers_first() -> None:
    first, second = subjects(plan(0.05, release="r2")), subjects(plan(0.05, release="r3"))
    assert len(first & second) < 0.1 * len(first)


@given(st.text(max_size=50), st.floats(0.0, 1.0))
def test_any_key_gets_an_arm(key: str, share: float) -> None:
    assert choose_arm(plan(share), key + "\ud83d") in set(Arm)


@given(
    stage=st.sampled_from(Stage),
    share=st.floats(0.0, 1.0),
    remaining=st.none() | st.floats(0.0, 1e9),
    why=st.text(max_size=20),
)
def test_a_plan_survives_json(stage: Stage, share: float, remaining: float | None, why: str) -> None:
    live = stage in {Stage.SERVING, Stage.CANARY, Stage.RAMP_20, Stage.RAMP_50}
    before = replace(plan(share if live else 0.0, stage=stage), forced_remaining_s=remaining, why=why)
    assert RoutingPlan.from_json(before.to_json()) == before


def test_what_a_later_version_adds_to_a_plan_is_passed_over_by_this_one() -> None:
    before = plan()
    later = json.dumps(before.as_json() | {"colour_of_the_sky": "blue"})
    assert RoutingPlan.from_json(later) == before


@pytest.mark.parametrize("share", [math.nan, math.inf, -0.1, 1.1])
def test_a_share_that_is_no_share_is_refused(share: float) -> None:
    with pytest.raises(ConfigError, match="share from 0 to 1"):
        plan(share)


@pytest.mark.parametrize("stage", [Stage.DEGRADED, Stage.SHADOW, Stage.REJECTED])
def test_no_plan_gives_live_traffic_to_a_subject_that_is_not_trusted(stage: Stage) -> None:
    with pytest.raises(ConfigError, match="there it gets 0"):
        plan(0.2, stage=stage)


def test_a_plan_names_a_release_for_each_colour_that_it_uses() -> None:
    with pytest.raises(ConfigError, match="names no release"):
        replace(plan(), releases={Colour.GREEN: "r2", Colour.BLUE: None})
    with pytest.raises(ConfigError, match="stand in for itself"):
        replace(plan(), stand_in=Colour.GREEN)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"epoch": 1}', plan().to_json().replace("ramp_20", "sideways")])
def test_what_is_not_a_plan_is_refused_in_words(text: str) -> None:
    with pytest.raises(ConfigError, match="not a routing plan"):
        RoutingPlan.from_json(text)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epoch", "NaN"),
        ("epoch", "Infinity"),
        ("epoch", "-1"),
        ("epoch", '"7"'),
        ("epoch", "1" + "0" * 400),
        ("relapses", "Infinity"),
        ("forced", "NaN"),
        ("forced_remaining_s", "NaN"),
        ("forced_remaining_s", "Infinity"),
        ("why", "[]"),
        ("releases", '{"blue": 7, "green": "r0"}'),
    ],
)
def test_a_plan_that_no_later_one_could_replace_or_that_is_of_odd_kinds_is_none(name: str, value: str) -> None:
    """A gateway that takes a plan of epoch Infinity follows no other for as long as it lives."""
    body = {key: json.dumps(of) for key, of in json.loads(plan().to_json()).items()} | {name: value}
    text = "{" + ", ".join(f'"{key}": {of}' for key, of in body.items()) + "}"
    with pytest.raises(ConfigError, match=name):
        RoutingPlan.from_json(text)
