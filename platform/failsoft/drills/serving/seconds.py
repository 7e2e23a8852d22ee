"""What callers got in each second of a trial: for a file beside it, and for one line that a person reads."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from failsoft.drills.serving.answers import Answer
from failsoft.drills.serving.course import Course, by_model


@dataclass(frozen=True, kw_only=True)
class Second:
    """Requests that were sent in one second."""

    at_s: int
    """Seconds since the trial began; those under way when it began count as sent in the first."""
    asked: int
    lost: int
    fallback: int
    """Answered, and not by the model."""
    bad: int
    """Wrong answers of the model."""
    slowest_s: float
    """Of the answered ones."""

    @property
    def success(self) -> float:
        """Share that got a good answer; NaN where nobody asked."""
        return (self.asked - self.lost - self.bad) / self.asked if self.asked else math.nan


def by_second(course: Course, model_sources: Sequence[str]) -> list[Second]:
    """Every second from the first to the last request, also those in which nobody asked."""
    found: dict[int, list[Answer]] = {}
    for one in course.answers:
        found.setdefault(max(0, math.floor(one.sent_s - course.began_s)), []).append(one)
    return [_second(at_s, found.get(at_s, []), model_sources) for at_s in range(max(found, default=-1) + 1)]


def to_text(course: Course, seconds: Sequence[Second]) -> str:
    """JSON: the blows with their moments, and the seconds."""
    blows = [
        {
            "kind": str(blow.kind),
            "struck_s": round(blow.struck_s - course.began_s, 3),
            "mended_s": round(blow.mended_s - course.began_s, 3),
            "done": blow.words,
        }
        for blow in course.blows
    ]
    whole_s = None if course.whole_s is None else round(course.whole_s - course.began_s, 3)
    return json.dumps({"blows": blows, "whole_s": whole_s, "seconds": [asdict(one) for one in seconds]}, indent=1)


def in_words(seconds: Sequence[Second]) -> str:
    """Share of good answers in each second in which it was not all of them, runs of the same put together."""
    parts: list[str] = []
    began, shown = 0, ""
    for at, word in enumerate([*map(_share, seconds), ""]):
        if word != shown:
            if shown not in {"", "100 %"}:
                parts.append(f"s {began}{'' if at - began == 1 else f'-{at - 1}'}: {shown}")
            began, shown = at, word
    return f"good answers by second: {', '.join(parts)}" if parts else "every second 100 % good answers"


def _share(second: Second) -> str:
    return f"{second.success * 100:.0f} %" if second.asked else "nobody asked"


def _second(at_s: int, answers: Sequence[Answer], model_sources: Sequence[str]) -> Second:
    answered = [one for one in answers if not one.lost]
    return Second(
        at_s=at_s,
        asked=len(answers),
        lost=len(answers) - len(answered),
        fallback=sum(not by_model(one, model_sources) for one in answered),
        bad=sum(one.right is False for one in answers),
        slowest_s=round(max((one.done_s - one.sent_s for one in answered), default=0.0), 3),
    )
