"""What is said at a glance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.console.words import arms_of, history_of, now_of, window_of
from tests.console.made import Scene, plan_body


def glance(
    status: str = "HEALTHY", *, away: bool = False, not_armed: str | None = None, **given: Any
) -> dict[str, Any]:
    scene = Scene(Path("/nowhere"))
    scene.plan = plan_body(**given)
    scene.health = {"status": status, "reason": "so", "not_armed": not_armed}
    rollout = {"error": "does not answer"} if away else {"waits_for": "40 more answers", "evidence": scene.evidence}
    return now_of(scene.status(), rollout)


@pytest.mark.parametrize(
    ("given", "mood", "words"),
    [
        ({}, "good", "r1 answers everything. Weak answers are replaced one by one."),
        ({"stage": "degraded", "share": 0.0}, "bad", "r1 is out of service. The fallback answers everybody."),
        ({"stage": "shadow", "share": 0.0, "stand_in": "green"}, "warn", "it gets copies. r0 answers everybody."),
        (
            {"stage": "ramp_20", "share": 0.2},
            "warn",
            "r1 is coming back with 20% of the traffic. The fallback answers the rest.",
        ),
    ],
)
def test_one_sentence_says_who_serves_and_who_answers(given: dict[str, Any], mood: str, words: str) -> None:
    now = glance(**given)
    assert words in now["glance"]
    assert now["mood"] == mood


@pytest.mark.parametrize(
    ("said", "mood"),
    [
        (glance("DEGRADED"), "bad"),
        (glance("NO_VERDICT"), "warn"),
        (glance("something new"), "warn"),
        (glance(away=True), "warn"),
        (glance(not_armed="no baseline"), "warn"),
    ],
)
def test_what_is_not_known_is_never_good_news(said: dict[str, Any], mood: str) -> None:
    assert said["mood"] == mood


def test_the_reason_says_what_is_waited_for_and_that_the_controller_is_away() -> None:
    assert "Because: weak. It waits for: 40 more answers." in glance(why="weak")["why"]
    assert "The controller is away (does not answer)" in glance(away=True)["why"]
    assert "not watched: no baseline" in glance(not_armed="no baseline")["why"]


def test_a_reason_that_is_told_beside_it_is_not_told_twice_and_waiting_for_nothing_not_at_all() -> None:
    scene = Scene(Path("/nowhere"))
    scene.plan = plan_body(why="17 weak of 84")
    rollout = {"waits_for": "nothing: the subject serves"}
    assert now_of(scene.status(), rollout)["why"].startswith("Because: 17 weak of 84. This gateway's window")
    assert "17 weak" not in now_of(scene.status(), rollout, (), {"17 weak of 84"})["why"]
    assert "17 weak" not in now_of(scene.status(), rollout, {"overload"})["why"], (
        "it serves, and that is not the wave's"
    )


def test_callers_who_are_judged_alone_are_named() -> None:
    scene = Scene(Path("/nowhere"))
    scene.health["signals"] = {"callers_apart": {"1f0c2d3e": "12 bad of 20"}}
    assert "Caller 1f0c2d3e is judged alone: 12 bad of 20." in now_of(scene.status(), {})["why"]


def test_a_model_that_gets_everything_does_not_answer_everything_in_a_wave() -> None:
    scene = Scene(Path("/nowhere"))
    one = now_of(scene.status(), {}, {"overload"})
    assert (one["mood"], "r1 answers only a part: it has no room for the rest." in one["glance"]) == ("warn", True)
    both = now_of(scene.status(), {}, {"overload", "bad_input"})
    assert "r1 answers what can be read and only a part" in both["glance"]


def test_signals_that_only_warn_are_said() -> None:
    scene = Scene(Path("/nowhere"))
    scene.health["signals"] = {"warnings": {"repaired": "60 of the last 120 texts had to be repaired"}}
    assert "It warns of repaired: 60 of the last 120 texts" in now_of(scene.status(), {})["why"]


def test_arms_stand_side_by_side_and_what_was_not_counted_is_said() -> None:
    scene = Scene(Path("/nowhere"))
    scene.plan = plan_body(stage="canary", share=0.05, stand_in="green")
    evidence = {"in_stage": [1, 40], "on_trial": [3, 90], "stand_in": [0, 0]}
    rows = arms_of(scene.status(), {"evidence": evidence, "mirror": {"agree": 38, "compared": 40}})
    assert ["bad answers since shadow", "3 of 90", "none counted"] in rows
    assert ["share of the traffic", "5%", "95%"] in rows
    assert ["copies that agree", "38 of 40", "–"] in rows
    assert len(arms_of(scene.status(), {"error": "away"})) == 4
    assert ["gates", "of r1", "of r0"] in arms_of(scene.status(), {}, lambda release: f"of {release}")


@given(
    st.lists(
        st.tuples(
            st.integers(-100_000, 2_000_000).map(lambda ago_ms: ago_ms / 1000),
            st.dictionaries(st.sampled_from("ab"), st.integers(0, 50)),
        ),
        max_size=30,
    )
)
def test_answers_of_the_last_minutes_are_all_in_the_chart_and_none_else(
    spans: list[tuple[float, dict[str, int]]],
) -> None:
    now_s = 10_000.0
    lines = [
        {"at_s": now_s - ago_s, "answers": {s: {"none": n} for s, n in sources.items()}} for ago_s, sources in spans
    ]
    steps = history_of(lines, now_s=now_s, history_s=600.0, step_s=5.0)
    assert len(steps) == 120
    shown = sum(rate * 5.0 for step in steps for rate in step["rates"].values())
    late_s = min((ago_s for ago_s, _ in spans if ago_s >= 0.0), default=0.0)
    end_s = late_s if late_s < 10.0 else 0.0
    inside = [
        (max(0.0, min(ago_s + 5.0, end_s + 600.0) - max(ago_s, end_s)) / 5.0, sources) for ago_s, sources in spans
    ]
    expected = sum(part * sum(sources.values()) for part, sources in inside)
    assert shown == pytest.approx(expected, abs=1.0)


@given(st.floats(0.0, 6.0), st.floats(0.9, 1.1))
def test_steady_traffic_is_an_even_line_whenever_one_looks(late_s: float, slower: float) -> None:
    took_s = 5.0 * slower
    lines = [{"at_s": 10_000.0 - n * took_s, "span_s": took_s, "answers": {"a": {"none": 1000}}} for n in range(200)]
    steps = history_of(lines, now_s=10_000.0 + late_s, history_s=600.0, step_s=5.0)
    rates = [step["rates"]["a"] for step in steps]
    assert rates == pytest.approx([1000 / took_s] * 120, rel=1e-3)


def test_the_share_of_bad_answers_is_that_of_those_that_the_model_was_asked_for() -> None:
    answers = {"primary": {"none": 60}, "rules": {"weak": 15, "late": 3, "error": 2, "stage": 400, "shed": 9}}
    lines = [{"at_s": 10_000.0, "span_s": 5.0, "answers": answers}]
    lines += [{"at_s": 9_990.0, "span_s": 5.0, "answers": {"rules": {"stage": 40}}}]
    steps = history_of(lines, now_s=10_000.0, history_s=600.0, step_s=5.0)
    assert [step["bad"] for step in steps[-4:]] == [None, None, None, 0.25]


def test_the_window_is_told_in_numbers_and_what_is_not_known_is_none() -> None:
    scene = Scene(Path("/nowhere"))
    assert window_of(scene.status()) == {"bad": 2, "total": 90, "limit": 0.2}
    del scene.health["limit"]
    assert window_of(scene.status()) == {"bad": 2, "total": 90, "limit": None}


def test_where_nobody_was_answered_for_a_while_the_line_falls() -> None:
    lines = [{"at_s": 10_000.0, "span_s": 5.0, "answers": {"a": {"none": 1000}}}]
    steps = history_of(lines, now_s=10_020.0, history_s=600.0, step_s=5.0)
    assert [bool(step["rates"]) for step in steps[-6:]] == [False, True, False, False, False, False]
