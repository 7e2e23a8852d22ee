"""What happened in one trial, as the oracle gets it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from failsoft.drills.fault import DrillFault
from failsoft.drills.serving.answers import Answer

DOWN_AT_MOST_S = 90.0
"""At least so much is borne: on a busy machine Ray and Serve take a minute to start."""
_LOOK_BACK_S, _STILL_OUT_S = 1.6, 0.5
_HEARD = 0.6
"""Of the requests due in that time so many must have been answered: on a busy machine the client itself is late."""
_LESS_MODEL = 0.15
"""So much less of the answers may be the model's than before any fault: one or two late ones of a busy machine."""


@dataclass(frozen=True, kw_only=True)
class Blow:
    """One fault that was carried out. Times are the client's."""

    kind: DrillFault
    struck_s: float
    mended_s: float
    """When its cause was taken away."""
    words: str
    """What was done, to which processes or files."""
    reached: bool | None
    """Whether it is known to have had its effect; None: nobody could tell."""


@dataclass(frozen=True, kw_only=True)
class Wave:
    """Requests of somebody else beside the steady ones: too many of them, or malformed ones."""

    asked: int = 0
    wrong: int = 0
    """Answered by an error of the server's (5xx), or not at all."""
    words: tuple[str, ...] = ()
    """The first of the wrong ones: what was sent, and what came."""
    served: int = 0
    """Of those asked so many got what they asked for (2xx)."""
    began_s: float = math.inf
    """The client's time of the first of them …"""
    ended_s: float = -math.inf
    """… and of the last answer."""

    def __add__(self, other: Wave) -> Wave:
        """Both together."""
        return Wave(
            asked=self.asked + other.asked,
            wrong=self.wrong + other.wrong,
            words=(self.words + other.words)[:4],
            served=self.served + other.served,
            began_s=min(self.began_s, other.began_s),
            ended_s=max(self.ended_s, other.ended_s),
        )

    @property
    def lasted_s(self) -> float:
        """0.0: nobody asked."""
        return max(0.0, self.ended_s - self.began_s)


@dataclass(frozen=True, kw_only=True)
class Course:
    """One trial from its first request to its last."""

    answers: Sequence[Answer]
    blows: Sequence[Blow]
    began_s: float
    whole_s: float | None
    """When all was as before again; None: it was not, within the time it had."""
    rate_hz: float
    wave: Wave = field(default_factory=Wave)
    left: tuple[str, ...] = ()
    """Processes that are there now and were not before, or should have ended."""
    knows_right: bool = True
    """Whether it is known what the healthy app answers."""
    down_at_most_s: float = DOWN_AT_MOST_S
    """Where nothing of the app was left: so long callers may get no answer."""

    @property
    def mended_s(self) -> float:
        """When the last cause was gone."""
        return max((blow.mended_s for blow in self.blows), default=self.began_s)


@dataclass(frozen=True, kw_only=True)
class Healthy:
    """The app before any fault."""

    model_share: float
    """Share of its answers that the model gave; 1.0 where nobody says who answers."""

    @classmethod
    def of(cls, answers: Sequence[Answer], model_sources: Sequence[str]) -> Healthy:
        """From some answers; none at all is nothing healthy.

        Raises:
            ValueError: there are none.
        """
        if not answers:
            raise ValueError("no answers, so nothing is known of the healthy app")
        return cls(model_share=_model_share(answers, model_sources))

    def whole(self, answers: Sequence[Answer], now_s: float, rate_hz: float, model_sources: Sequence[str]) -> bool:
        """Whether the last second of requests went as before: all answered, rightly, by the model.

        Args:
            answers: those that have come, of requests since the last cause was gone: older ones prove nothing.
            now_s: the client's time; requests of the last half second may still be out.
            rate_hz: how many are sent in a second.
            model_sources: what answers of the model in service name as their source.
        """
        lately = [one for one in answers if now_s - _LOOK_BACK_S <= one.sent_s <= now_s - _STILL_OUT_S]
        if len(lately) < _HEARD * rate_hz * (_LOOK_BACK_S - _STILL_OUT_S):
            return False
        if any(one.lost or one.right is False for one in lately):
            return False
        return _model_share(lately, model_sources) >= self.model_share - _LESS_MODEL


def by_model(answer: Answer, model_sources: Sequence[str]) -> bool:
    """Whether the model in service gave it; where nobody says who answers it is taken for the model's."""
    return not answer.lost and (answer.source is None or answer.source in model_sources)


def _model_share(answers: Sequence[Answer], model_sources: Sequence[str]) -> float:
    return sum(by_model(one, model_sources) for one in answers) / len(answers)
