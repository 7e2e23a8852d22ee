"""Which answers a gateway gave lately, so that a label that comes later finds the model that gave them.

Bounded in number and in age. Request ids are kept as digests of 8 bytes: callers choose them, and they may name people.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

from failsoft.health.clock import Clock
from failsoft.serving.plan.plan import Arm, Colour, RoutingPlan

_MAX_TEXT = 200
"""Characters of an output that is kept; whatever is longer, or no scalar, could fill the memory."""


class Given(NamedTuple):
    """What a model answered to one item."""

    request_id: str
    row: int
    """Place of the item in its request."""
    release: str
    load_generation: int
    output: Any


class Kept(NamedTuple):
    """One remembered answer of a model."""

    weights: tuple[str, int]
    """Release and load."""
    output: Any
    """None: it is too large to be remembered."""
    caller: int | None
    mirrored: bool


@dataclass(kw_only=True, slots=True)
class Remembered:
    """What is known of one answered item."""

    at_s: float
    models: tuple[Kept, ...]
    """The live answer's model, and the one that got a copy. Neither: the fallback answered."""
    labelled: bool = False
    """Its label has come: a second one counts nothing."""
    ambiguous: bool = False
    """The same id stands for another answer, too, as of another caller: nobody knows whose a label is."""


def answer_key(request_id: str, row: int) -> int:
    """The number of one item of a request, the same in every process."""
    return int.from_bytes(blake2b(f"{row}/{request_id}".encode("utf-8", "surrogatepass"), digest_size=8).digest())


class AnswerMemory:
    """Remembers answers. O(1) work for each; the oldest make room.

    Args:
        clock: tells how old an answer is.
        max_answers: so many are remembered at most …
        max_age_s: … and none for longer.
    """

    def __init__(self, clock: Clock, *, max_answers: int, max_age_s: float) -> None:
        self._clock, self._max_answers, self._max_age_s = clock, max_answers, max_age_s
        self._answers: dict[int, Remembered] = {}
        self._order: deque[int] = deque()  # a dict that loses its first keys again and again finds its first one slowly

    def __len__(self) -> int:
        """How many are remembered, some of which may be too old by now."""
        return len(self._answers)

    def model(self, given: Given, *, caller: int | None, mirrored: bool) -> None:
        """A model answered an item, a live request or a copy."""
        output = given.output if _is_small(given.output) else None
        kept = Kept((given.release, given.load_generation), output, caller, mirrored)
        self._answered(answer_key(given.request_id, given.row), kept)

    def fallback(self, request_id: str, row: int) -> None:
        """No model's answer was given to an item."""
        self._answered(answer_key(request_id, row), None)

    def find(self, key: int) -> Remembered | None:
        """What is known of an item; None: nothing (any more)."""
        known = self._answers.get(key)
        return known if known is not None and not self._clock.monotonic_s() - known.at_s > self._max_age_s else None

    def _answered(self, key: int, kept: Kept | None) -> None:
        """An id that comes again with the same output stands for its newest answer: as a request that was sent twice.

        With another output it may be another caller's, who counts from 1 as well: a label would be held against what
        was never said of its item.
        """
        known = self._answers.get(key)
        if known is None:
            self._answers[key] = Remembered(at_s=self._clock.monotonic_s(), models=() if kept is None else (kept,))
            self._order.append(key)
            self._forget_the_oldest()
        else:
            mirrored = kept is not None and kept.mirrored
            before = [one.output for one in known.models if one.mirrored is mirrored]
            others = tuple(one for one in known.models if one.mirrored is not mirrored)
            known.models = others if kept is None else (*others, kept)
            if kept is not None and (before or not mirrored):
                known.ambiguous |= before != [kept.output]

    def _forget_the_oldest(self) -> None:
        """One more has come, so at most two go: that keeps both bounds, in time, without a moment of much work."""
        for _ in range(2):
            oldest = self._order[0]
            if len(self._answers) > self._max_answers or self.find(oldest) is None:
                del self._answers[self._order.popleft()]


def arm_with(plan: RoutingPlan, weights: tuple[str, int]) -> Arm | None:
    """Which arm of a plan has these weights loaded now; None: they are gone, as after a reload."""
    arms: Mapping[Arm, Colour | None] = {Arm.SUBJECT: plan.subject, Arm.STAND_IN: plan.stand_in}
    for arm, colour in arms.items():
        if colour is not None and weights == (plan.releases.get(colour), plan.load_generation.get(colour, 0)):
            return arm
    return None


def _is_small(output: Any) -> bool:
    return isinstance(output, int | float) or (isinstance(output, str) and len(output) <= _MAX_TEXT)
