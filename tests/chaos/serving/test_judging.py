"""The oracle of the serving side on made-up series of answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from failsoft.drills.fault import DrillFault
from failsoft.drills.serving.answers import Answer
from failsoft.drills.serving.course import Blow, Course, Wave
from failsoft.drills.serving.judging import gone_back, judged
from failsoft.drills.serving.promises import KINDS, PROMISES, SHORT_KINDS

MODELS = ("primary", "canary")
STRUCK_S, MENDED_S, WHOLE_S, ENDED_S = 2.0, 6.0, 16.0, 18.0


def asked(*, every_s: float = 0.1, until_s: float = ENDED_S) -> list[Answer]:
    """A healthy app's answers."""
    return [
        Answer(
            sent_s=number * every_s, done_s=number * every_s + 0.01, status=200, source="primary", epoch=4, right=True
        )
        for number in range(int(until_s / every_s))
    ]


def course(kind: DrillFault, answers: Sequence[Answer], **more: object) -> Course:
    blow = Blow(kind=kind, struck_s=STRUCK_S, mended_s=MENDED_S, words="struck", reached=True)
    made = Course(answers=answers, blows=[blow], began_s=0.0, whole_s=WHOLE_S, rate_hz=10.0)
    return replace(made, **more)  # type: ignore[arg-type]  # each test names what it changes


def with_change(answers: Sequence[Answer], at_s: float, **change: object) -> list[Answer]:
    """The answer to the request of that moment is another one."""
    return [replace(one, **change) if abs(one.sent_s - at_s) < 0.01 else one for one in answers]  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_an_app_that_answers_as_before_has_survived(kind: DrillFault) -> None:
    verdict = judged(course(kind, asked()), MODELS)
    assert (verdict.survived, verdict.lost, verdict.bad_late, verdict.whole_after_s) == (True, 0, 0, 10.0)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in {DrillFault.KILL_HEAD}])
def test_one_request_without_an_answer_long_after_the_blow_is_lost(kind: DrillFault) -> None:
    verdict = judged(course(kind, with_change(asked(), 5.0, status=0, reason="ReadTimeout")), MODELS)
    assert (verdict.survived, verdict.lost) == (False, 1)
    assert "no answer ReadTimeout" in verdict.why


def test_what_a_killed_gateway_held_is_excused_and_what_came_later_is_not() -> None:
    held = with_change(asked(), 2.0, status=0)
    assert judged(course(DrillFault.KILL_GATEWAY, held), MODELS).survived is True
    later = with_change(held, 3.0, status=0)
    verdict = judged(course(DrillFault.KILL_GATEWAY, later), MODELS)
    assert (verdict.survived, verdict.lost, verdict.excused) == (False, 1, 1)


def test_while_the_head_is_down_nobody_can_answer_and_before_and_after_somebody_can() -> None:
    down = [replace(one, status=0) if STRUCK_S <= one.sent_s <= 12.0 else one for one in asked()]
    verdict = judged(course(DrillFault.KILL_HEAD, down), MODELS)
    assert verdict.survived is True
    assert verdict.excused == 101
    assert judged(course(DrillFault.KILL_HEAD, with_change(down, 17.0, status=0)), MODELS).survived is False
    assert judged(course(DrillFault.KILL_HEAD, with_change(down, 1.0, status=500)), MODELS).survived is False


def test_an_overloaded_app_may_refuse_in_words_and_may_not_break() -> None:
    refused = with_change(asked(), 3.0, status=429)
    assert judged(course(DrillFault.OVERLOAD, refused), MODELS).survived is True
    assert judged(course(DrillFault.OVERLOAD, with_change(asked(), 3.0, status=500)), MODELS).survived is False
    assert judged(course(DrillFault.KILL_REPLICA, refused), MODELS).survived is False


CROWD = Wave(asked=4000, served=400, began_s=2.5, ended_s=5.5)


def turned_away() -> list[Answer]:
    """The steady requests, each refused for as long as the others asked."""
    return [replace(one, status=429, source=None, right=None) if 2.4 <= one.sent_s <= 5.6 else one for one in asked()]


def test_an_overloaded_app_that_turns_everybody_away_has_not_survived() -> None:
    """Each refusal was excused, so an app that answered nobody at all counted as one that gives less and goes on."""
    for served, survived in ((0, False), (7, False), (8, True), (400, True)):
        wave = replace(CROWD, served=served)
        verdict = judged(course(DrillFault.OVERLOAD, turned_away(), wave=wave), MODELS)
        assert verdict.survived is survived, verdict.why
    nobody = judged(course(DrillFault.OVERLOAD, turned_away(), wave=replace(CROWD, served=0)), MODELS)
    assert "while too much was asked it answered 0.0 requests a second, 2.5 are the least" in nobody.why


def test_a_crowd_that_hardly_came_to_ask_accuses_nobody() -> None:
    """So it is on a machine that has no time for it: few were asked, and most of those got their answer."""
    few = replace(CROWD, asked=6, served=4)
    assert judged(course(DrillFault.OVERLOAD, turned_away(), wave=few), MODELS).survived is True
    assert judged(course(DrillFault.OVERLOAD, turned_away(), wave=replace(few, served=2)), MODELS).survived is False


def test_who_gets_the_answers_under_overload_is_the_apps_affair() -> None:
    """One that holds others back for the sake of its steady callers answers those."""
    assert judged(course(DrillFault.OVERLOAD, asked(), wave=replace(CROWD, served=0)), MODELS).survived is True
    assert judged(course(DrillFault.KILL_REPLICA, asked(), wave=replace(CROWD, served=0)), MODELS).survived is True


def test_waves_of_two_faults_are_one_from_the_first_to_the_last() -> None:
    both = CROWD + Wave() + Wave(asked=10, served=3, began_s=1.0, ended_s=2.0)
    assert (both.asked, both.served, both.began_s, both.lasted_s) == (4010, 403, 1.0, 4.5)
    assert Wave().lasted_s == 0.0


def test_a_head_that_stays_away_for_too_long_is_no_survival_though_all_is_whole_in_the_end() -> None:
    down = [replace(one, status=0) if STRUCK_S <= one.sent_s <= 12.0 else one for one in asked()]
    borne = course(DrillFault.KILL_HEAD, down, down_at_most_s=10.1)
    assert judged(borne, MODELS).survived is True
    verdict = judged(replace(borne, down_at_most_s=9.9), MODELS)
    assert (verdict.survived, verdict.lost) == (False, 0)
    assert "nobody was answered for 10 s, 10 s are borne" in verdict.why
    assert judged(
        course(DrillFault.KILL_GATEWAY, with_change(asked(), 2.0, status=0), down_at_most_s=0.0), MODELS
    ).survived


def test_bad_answers_are_borne_for_the_stated_time_and_no_longer() -> None:
    stated_s = PROMISES[DrillFault.GARBAGE_MODEL].bad_within_s
    early = with_change(asked(), STRUCK_S + 0.5, right=False)
    verdict = judged(course(DrillFault.GARBAGE_MODEL, early), MODELS)
    assert (verdict.survived, verdict.bad, verdict.bad_late) == (True, 1, 0)
    late = with_change(early, STRUCK_S + stated_s + 0.5, right=False)
    verdict = judged(course(DrillFault.GARBAGE_MODEL, late), MODELS)
    assert (verdict.survived, verdict.bad, verdict.bad_late) == (False, 2, 1)


def test_the_switch_is_timed_from_the_blow_to_the_first_answer_of_somebody_else() -> None:
    switched = with_change(asked(), 2.4, source="rules", right=None)
    verdict = judged(course(DrillFault.GARBAGE_MODEL, switched), MODELS)
    assert verdict.switched_after_s == pytest.approx(0.41)
    assert "1 answered by the fallback, the first 0.41 s after the blow" in verdict.why


def test_an_app_that_does_not_become_whole_has_not_survived() -> None:
    verdict = judged(course(DrillFault.KILL_REPLICA, asked(), whole_s=None), MODELS)
    assert (verdict.survived, verdict.whole_after_s) == (False, None)


def test_a_process_too_many_or_a_failed_request_of_others_is_no_survival() -> None:
    left = judged(course(DrillFault.KILL_REPLICA, asked(), left=("ray::ServeReplica:a:model",)), MODELS)
    assert (left.survived, "ray::ServeReplica:a:model" in left.why) == (False, True)
    wave = Wave(asked=30, wrong=2, words=("b'{': 500 Internal Server Error",))
    verdict = judged(course(DrillFault.MALFORMED_WAVE, asked(), wave=wave), MODELS)
    assert verdict.survived is False
    assert "500 Internal Server Error" in verdict.why


def test_a_plan_that_goes_back_is_seen_and_replicas_that_follow_a_moment_later_are_not() -> None:
    answers = asked()
    moved = [replace(one, epoch=5) if one.sent_s > 4.0 else one for one in answers]
    assert gone_back(with_change(moved, 4.5, epoch=4)) == 0
    back = with_change(moved, 9.0, epoch=4)
    assert gone_back(back) == 1
    assert judged(course(DrillFault.KILL_CONTROLLER, back), MODELS).survived is False


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"blows": []}, "no fault was carried out"),
        ({"answers": asked(until_s=1.5)[:9]}, "too few requests"),
        ({"knows_right": False}, "nobody can tell a bad answer"),
        ({"answers": [replace(one, right=None) for one in asked()]}, "nobody can tell a bad answer"),
        (
            {"blows": [Blow(kind=DrillFault.SLOW_MODEL, struck_s=2.0, mended_s=6.0, words="slow", reached=False)]},
            "it never struck: slow",
        ),
        (
            {"blows": [Blow(kind=DrillFault.SLOW_MODEL, struck_s=2.0, mended_s=6.0, words="slow", reached=None)]},
            "nobody can tell whether it struck: slow",
        ),
    ],
)
def test_what_cannot_be_told_is_undecided_and_never_good(change: dict[str, object], words: str) -> None:
    verdict = judged(course(DrillFault.GARBAGE_MODEL, change.pop("answers", asked()), **change), MODELS)  # type: ignore[arg-type]
    assert verdict.survived is None
    assert words in verdict.why


def test_late_answers_on_a_machine_that_stood_still_accuse_nobody_and_silence_on_a_quiet_one_does() -> None:
    late = with_change(asked(), 5.0, status=0, reason="TimeoutError")
    assert judged(course(DrillFault.KILL_CONTROLLER, late), MODELS).survived is False
    starved = [one for one in late if not 5.05 < one.sent_s < 6.5]
    verdict = judged(course(DrillFault.KILL_CONTROLLER, starved), MODELS)
    assert (verdict.survived, verdict.lost) == (None, 1)
    assert "the client was held up for 1.5 s itself" in verdict.why
    refused = with_change(starved, 8.0, status=500)
    assert judged(course(DrillFault.KILL_CONTROLLER, refused), MODELS).survived is False


def test_a_broken_promise_is_known_also_where_the_fault_was_not() -> None:
    unsure = Blow(kind=DrillFault.SLOW_MODEL, struck_s=2.0, mended_s=6.0, words="slow", reached=False)
    lossy = with_change(asked(), 9.0, status=500)
    assert judged(course(DrillFault.SLOW_MODEL, lossy, blows=[unsure]), MODELS).survived is False


def test_every_kind_has_a_promise_and_the_loss_of_the_head_comes_last() -> None:
    assert set(PROMISES) == set(KINDS)
    assert set(SHORT_KINDS) < set(KINDS)
    assert KINDS[-1] is SHORT_KINDS[-1] is DrillFault.KILL_HEAD
