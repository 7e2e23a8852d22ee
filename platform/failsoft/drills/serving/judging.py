"""The oracle: from what callers saw to a verdict. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from failsoft.drills.fault import DrillFault
from failsoft.drills.serving.answers import Answer
from failsoft.drills.serving.course import Blow, Course, by_model
from failsoft.drills.serving.promises import PROMISES, Excuse

FOLLOW_S = 2.0
"""Replicas follow a plan milliseconds apart; an answer under an older plan that was asked for so long after a newer
one was seen has gone back."""
_STARVED_S = 1.0
"""The client asks some ten times a second at least. Where it could not for so long, the machine had no time for
anybody, and an answer that only came late says nothing of the app."""
_GOODPUT = 0.25
"""Of the rate of steady requests: so many must be answered a second while too much is asked, whoever asks them."""
_ASKED_FRACTION = 0.5
"""Fewer requests than this part of what was planned, and the client starved: what it saw says little of the app."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What the oracle says of one trial."""

    survived: bool | None
    why: str
    """All figures, and the first promise that was broken."""
    asked: int
    lost: int
    """Without an answer though somebody could have given one."""
    excused: int
    """Without an answer, and nobody was there who could have."""
    bad: int
    """Wrong answers of the model that callers got."""
    bad_late: int
    """Those among them that were asked for after the stated time."""
    backwards: int
    """Answers under a plan older than one that had long been seen."""
    switched_after_s: float | None
    """From the first blow to the first answer that was not the model's; None: there was none."""
    whole_after_s: float | None
    """From the end of the last cause until all was as before."""


def judged(course: Course, model_sources: Sequence[str]) -> Verdict:
    """The verdict on one trial.

    Args:
        course: what happened.
        model_sources: what answers of the model in service name as their source.
    """
    lost = [one for one in course.answers if one.lost]
    excused = [one for one in lost if any(_excuses(blow, one, course) for blow in course.blows)]
    bad = [one for one in course.answers if one.right is False]
    bad_late = [one for one in bad if not any(_allows(blow, one) for blow in course.blows)]
    backwards = gone_back(course.answers)
    figures = {
        "asked": len(course.answers),
        "lost": len(lost) - len(excused),
        "excused": len(excused),
        "bad": len(bad),
        "bad_late": len(bad_late),
        "backwards": backwards,
    }
    times = {"switched_after_s": _switched_after_s(course, model_sources), "whole_after_s": _whole_after_s(course)}
    broken, doubt = _broken(course, figures), _doubt(course)
    if broken and _only_late(course, [one for one in lost if one not in excused], figures):
        broken, doubt = "", f"the client was held up for {held_up_s(course.answers):.1f} s itself; {broken}"
    survived = False if broken else None if doubt else True
    return Verdict(
        survived=survived,
        why=f"{_in_words(course, figures, times, model_sources)}{_because(broken, doubt)}",
        switched_after_s=times["switched_after_s"],
        whole_after_s=times["whole_after_s"],
        **figures,
    )


def held_up_s(answers: Sequence[Answer]) -> float:
    """The longest time in which the client sent nothing; 0.0 where it sent less than two requests."""
    sent_s = sorted(one.sent_s for one in answers)
    return max((after - before for before, after in pairwise(sent_s)), default=0.0)


def gone_back(answers: Sequence[Answer]) -> int:
    """Answers under a plan older than one that had been seen :data:`FOLLOW_S` before they were asked for."""
    known = sorted((one.done_s, one.epoch) for one in answers if one.epoch is not None)
    found, newest, index = 0, -1, 0
    for one in sorted(answers, key=lambda answer: answer.sent_s):
        while index < len(known) and known[index][0] < one.sent_s - FOLLOW_S:
            newest = max(newest, known[index][1])
            index += 1
        found += one.epoch is not None and one.epoch < newest
    return found


def turned_all_away(course: Course) -> str:
    """How few were answered while too much was asked; empty where it was enough.

    To refuse what is too much is right; to refuse nearly everybody is an outage with a friendly face.
    """
    wave, wanted_hz = course.wave, _GOODPUT * course.rate_hz
    if not wave.lasted_s or all(blow.kind is not DrillFault.OVERLOAD for blow in course.blows):
        return ""
    steady = sum(not one.lost and wave.began_s <= one.sent_s <= wave.ended_s for one in course.answers)
    answered_hz = (wave.served + steady) / wave.lasted_s
    refused = wave.asked - wave.served - wave.wrong
    if answered_hz >= wanted_hz or refused <= wave.served:  # few were asked at all, on a machine that had no time
        return ""
    return f"while too much was asked it answered {answered_hz:.1f} requests a second, {wanted_hz:g} are the least"


def down_s(course: Course) -> float:
    """From the blow that left nothing of the app to the last of the requests that nobody could answer; else 0.0."""
    down = [blow for blow in course.blows if PROMISES[blow.kind].excuse is Excuse.WHILE_DOWN]
    lost = [one.done_s - blow.struck_s for blow in down for one in course.answers if one.lost]
    return max(0.0, *lost) if lost else 0.0


def _down_in_words(course: Course) -> str:
    return f"nobody was answered for {down_s(course):.0f} s, {course.down_at_most_s:.0f} s are borne"


def _only_late(course: Course, lost: Sequence[Answer], figures: dict[str, int]) -> bool:
    """Whether nothing was wrong but requests that ran out of patience on a machine that stood still."""
    others = figures["bad_late"] or figures["backwards"] or course.wave.wrong or course.whole_s is None or course.left
    late = all(one.status == 0 and "Timeout" in one.reason for one in lost)
    starved = held_up_s(course.answers) >= max(_STARVED_S, 3.0 / course.rate_hz)
    return bool(lost) and late and not others and starved


def _excuses(blow: Blow, one: Answer, course: Course) -> bool:
    promise = PROMISES[blow.kind]
    if promise.excuse is Excuse.UNDER_WAY:
        return one.done_s >= blow.struck_s and one.sent_s <= blow.struck_s + promise.notice_s
    if promise.excuse is Excuse.WHILE_DOWN:
        until_s = course.whole_s if course.whole_s is not None else blow.struck_s
        return one.done_s >= blow.struck_s and one.sent_s <= until_s
    if promise.excuse is Excuse.TURNED_AWAY:
        return one.turned_away and blow.struck_s <= one.done_s <= blow.mended_s + FOLLOW_S
    return False


def _allows(blow: Blow, one: Answer) -> bool:
    return blow.struck_s <= one.done_s and one.sent_s <= blow.struck_s + PROMISES[blow.kind].bad_within_s


def _switched_after_s(course: Course, model_sources: Sequence[str]) -> float | None:
    struck_s = min((blow.struck_s for blow in course.blows), default=course.began_s)
    others = [one.done_s for one in course.answers if not one.lost and not by_model(one, model_sources)]
    after = [done_s - struck_s for done_s in others if done_s >= struck_s]
    return min(after, default=None)


def _whole_after_s(course: Course) -> float | None:
    return None if course.whole_s is None else max(0.0, course.whole_s - course.mended_s)


def _broken(course: Course, figures: dict[str, int]) -> str:
    """The first promise that was not kept, in words; empty: all were."""
    kept = (
        (figures["lost"] == 0, f"{figures['lost']} requests got no answer{_first_words(course)}"),
        (figures["bad_late"] == 0, f"{figures['bad_late']} bad answers came after the stated time"),
        (figures["backwards"] == 0, f"{figures['backwards']} answers came under a plan older than one seen before"),
        (not turned_all_away(course), f"{turned_all_away(course)}"),
        (down_s(course) <= course.down_at_most_s, _down_in_words(course)),
        (course.wave.wrong == 0, f"{course.wave.wrong} of the others' requests failed{_first(course.wave.words)}"),
        (course.whole_s is not None, "the app was not whole again in its time"),
        (not course.left, f"left behind: {', '.join(course.left)}"),
    )
    return next((words for fine, words in kept if not fine), "")


def _doubt(course: Course) -> str:
    """Why nothing good can be said though nothing bad was seen; empty: it can."""
    ended_s = max((one.sent_s for one in course.answers), default=course.began_s)
    planned = course.rate_hz * (ended_s - course.began_s)
    missed = [blow for blow in course.blows if blow.reached is not True]
    checks = (
        (bool(course.blows), "no fault was carried out"),
        (not missed, _missed_in_words(missed[0]) if missed else ""),
        (len(course.answers) >= max(10.0, _ASKED_FRACTION * planned), "too few requests could be sent to tell"),
        (
            (course.knows_right and any(one.right is not None for one in course.answers))
            or all(blow.kind is not DrillFault.GARBAGE_MODEL for blow in course.blows),
            "the healthy app answers the same request differently each time, so nobody can tell a bad answer",
        ),
    )
    return next((words for fine, words in checks if not fine), "")


def _missed_in_words(blow: Blow) -> str:
    how = "nobody can tell whether it struck" if blow.reached is None else "it never struck"
    return f"{how}: {blow.words}"


def _in_words(
    course: Course, figures: dict[str, int], times: dict[str, float | None], model_sources: Sequence[str]
) -> str:
    fallback = sum(not one.lost and not by_model(one, model_sources) for one in course.answers)
    slowest_s = max((one.done_s - one.sent_s for one in course.answers if not one.lost), default=0.0)
    parts = [f"{figures['asked']} asked, {figures['lost']} lost"]
    parts += [f"{figures['excused']} with nobody there to answer"] if figures["excused"] else []
    parts += [f"{figures['bad']} bad answers got through"] if figures["bad"] else []
    if fallback:
        after_s = times["switched_after_s"]
        since = "" if after_s is None else f", the first {after_s:.2f} s after the blow"
        parts.append(f"{fallback} answered by the fallback{since}")
    parts += [f"{course.wave.asked} more from others, {course.wave.served} of them served"] if course.wave.asked else []
    parts.append(f"slowest answer {slowest_s:.2f} s")
    back_s = times["whole_after_s"]
    parts += [] if back_s is None else [f"whole {back_s:.1f} s after the cause was gone"]
    return ", ".join(parts)


def _because(broken: str, doubt: str) -> str:
    return f"; {broken}" if broken else f"; undecided: {doubt}" if doubt else ""


def _first_words(course: Course) -> str:
    return _first([f"{one.status or 'no answer'} {one.reason}".strip() for one in course.answers if one.lost])


def _first(words: Sequence[str]) -> str:
    return f" ({words[0][:120]})" if words else ""
