"""What callers got, second by second."""

from __future__ import annotations

import json
import math

from failsoft.drills.fault import DrillFault
from failsoft.drills.serving.answers import Answer
from failsoft.drills.serving.course import Blow, Course
from failsoft.drills.serving.seconds import by_second, in_words, to_text


def course() -> Course:
    """Ten requests a second; the second one is lost, the third one comes from the fallback, none in the fifth."""
    answers = []
    for number in range(40):
        at_s = 100.0 + number / 10 + (1.0 if number >= 30 else 0.0)
        second = number // 10
        status, source = (500, None) if second == 1 else (200, "rules" if second == 2 else "primary")
        answers.append(Answer(sent_s=at_s, done_s=at_s + 0.25, status=status, source=source, right=second != 3 or None))
    blow = Blow(kind=DrillFault.KILL_REPLICA, struck_s=101.0, mended_s=102.5, words="SIGKILL", reached=True)
    return Course(answers=answers, blows=[blow], began_s=100.0, whole_s=104.5, rate_hz=10.0)


def test_each_second_is_counted_also_one_in_which_nobody_asked() -> None:
    seconds = by_second(course(), ("primary",))
    assert [(one.asked, one.lost, one.fallback) for one in seconds] == [
        (10, 0, 0),
        (10, 10, 0),
        (10, 0, 10),
        (0, 0, 0),
        (10, 0, 0),
    ]
    assert math.isnan(seconds[3].success)
    assert seconds[0].slowest_s == 0.25


def test_only_what_was_not_all_good_is_said() -> None:
    seconds = by_second(course(), ("primary",))
    assert in_words(seconds) == "good answers by second: s 1: 0 %, s 3: nobody asked"
    assert in_words(seconds[:1]) == "every second 100 % good answers"
    assert in_words([seconds[1], seconds[1]]) == "good answers by second: s 0-1: 0 %"


def test_the_file_holds_the_blows_at_their_moments() -> None:
    read = json.loads(to_text(course(), by_second(course(), ("primary",))))
    assert read["blows"] == [{"kind": "kill-replica", "struck_s": 1.0, "mended_s": 2.5, "done": "SIGKILL"}]
    assert read["whole_s"] == 4.5
    assert len(read["seconds"]) == 5
