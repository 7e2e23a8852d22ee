"""Right labels that come after the answer: for a model that is wrong and sure of it, which no other signal sees.

A label finds the answer by its request's id in the memory of the gateway that gave it. Any gateway takes labels: one
that did not give the answer hands the label on through the controller (see ``label_exchange.py``). What counts is
whether the answer was right; it is held against the very weights that gave it, under whatever plan they are now.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable
from enum import StrEnum
from typing import Any, NamedTuple

from failsoft.serving.arms.replies import agreement
from failsoft.serving.plan.plan import Arm, RoutingPlan
from failsoft.serving.seam import Quality
from failsoft.serving.watching.answer_memory import AnswerMemory, Kept, Remembered, arm_with
from failsoft.serving.watching.outcomes import OutcomeBuffer, Seen
from failsoft.serving.watching.watch import Watch
from failsoft.serving.web.messages import Answer, Source

MAX_WAITING = 10_000
"""Labels that wait to be handed on; the oldest make room."""
_MODELS = frozenset({Source.PRIMARY, Source.CANARY, Source.PREVIOUS})


class Told(NamedTuple):
    """A label on its way."""

    key: int
    """Of the answered item, see :func:`failsoft.serving.watching.answer_memory.answer_key`."""
    label: Any
    """The right output, as JSON can carry it."""


class End(StrEnum):
    """What became of a label."""

    COUNTED = "counted"
    REPEATED = "repeated"
    """This answer has its label already."""
    HANDED_ON = "handed_on"
    """This gateway did not give the answer, or has forgotten it: the others are asked."""
    NOT_A_MODELS = "not_a_models"
    """The fallback gave the answer."""
    OTHER_WEIGHTS = "other_weights"
    """The weights that gave the answer are not loaded any more: it says nothing about those that are."""
    UNKNOWN_LABEL = "unknown_label"
    """The release knows no such label, or it is no output of that kind at all, as null, NaN or a text for a number: a
    slip of whoever labels must not look like a model that is always wrong."""
    AMBIGUOUS = "ambiguous"
    """Different answers were given under this id: requests whose labels will come need ids of their own."""
    NOT_COMPARED = "not_compared"
    """Nobody can say whether the answer fits the label: no text or number, or too large to be remembered."""


class LateLabels:
    """Takes labels, and tells the replica's own eye and the controller which answers were right.

    Args:
        memory: of this gateway's answers.
        plan: gives the plan in force.
        watch: the replica's own eye on the subject.
        buffer: counts for the controller.
        quality: says whether an output fits a label.
        known: gives all labels that the releases in use know; empty: any may come.
    """

    def __init__(
        self,
        memory: AnswerMemory,
        *,
        plan: Callable[[], RoutingPlan],
        watch: Watch,
        buffer: OutcomeBuffer,
        quality: Quality,
        known: Callable[[], Collection[str]],
    ) -> None:
        self._memory, self._plan, self._watch, self._buffer = memory, plan, watch, buffer
        self._quality, self._known = quality, known
        self._ends: Counter[End] = Counter()
        self.waiting: deque[Told] = deque(maxlen=MAX_WAITING)
        """Labels of answers that this gateway does not know, to be handed on."""

    def noted(self, seen: Seen) -> None:
        """Remember what a model answered, where that may be given."""
        if seen.given is not None:
            self._memory.model(seen.given, caller=seen.caller, mirrored=seen.mirrored)

    def answered(self, answer: Answer, row: int) -> None:
        """Remember that a label for this item would say nothing about a model, where none answered it."""
        if answer.source not in _MODELS:
            self._memory.fallback(answer.request_id, row)

    def take(self, labels: Iterable[Told], *, handed_on: bool = False) -> dict[str, int]:
        """Count labels; those of unknown answers are kept to be handed on, unless they come from there.

        Returns:
            How many came to which end, see :class:`End`.
        """
        ends: Counter[End] = Counter()
        for told in labels:
            known = self._memory.find(told.key)
            if known is not None:
                ends[self._end_of(known, told.label)] += 1
            elif not isinstance(told.label, str | int | float):  # no gateway remembers such outputs
                ends[End.NOT_COMPARED] += 1
            elif not handed_on:
                self.waiting.append(told)
                ends[End.HANDED_ON] += 1
        self._ends.update(ends)
        return {str(end): count for end, count in ends.items()}

    def status(self) -> dict[str, Any]:
        """For people."""
        ends = {str(end): count for end, count in self._ends.items()}
        return ends | {"answers_remembered": len(self._memory), "waiting": len(self.waiting)}

    def _end_of(self, known: Remembered, label: Any) -> End:
        if known.labelled:
            return End.REPEATED
        if not known.models:
            return End.NOT_A_MODELS
        if known.ambiguous:
            return End.AMBIGUOUS
        if self._is_unknown(label, known):
            return End.UNKNOWN_LABEL
        known.labelled = True
        ends = {self._held_against(kept, label) for kept in known.models}
        return End.COUNTED if End.COUNTED in ends else min(ends)

    def _held_against(self, kept: Kept, label: Any) -> End:
        plan = self._plan()
        arm = arm_with(plan, kept.weights)
        if arm is None:
            return End.OTHER_WEIGHTS
        right = None if kept.output is None else agreement(self._quality, kept.output, label)
        if right is None:
            return End.NOT_COMPARED
        self._buffer.label(epoch=plan.epoch, arm=arm, mirrored=kept.mirrored, right=right, caller=kept.caller)
        if arm is Arm.SUBJECT:
            self._watch.feedback(right=right, caller=kept.caller)
        return End.COUNTED

    def _is_unknown(self, label: Any, known: Remembered) -> bool:
        if not all(kept.output is None or _of_one_kind(label, kept.output) for kept in known.models):
            return True
        labels = self._known()
        names = labels and all(isinstance(kept.output, str) and kept.output in labels for kept in known.models)
        return bool(names) and not (isinstance(label, str) and label in labels)


def _of_one_kind(label: Any, output: Any) -> bool:
    """Whether a label could be such an output: a text for a text, a finite number for a number."""
    if isinstance(output, str):
        return isinstance(label, str)
    return isinstance(label, int | float) and -math.inf < label < math.inf
