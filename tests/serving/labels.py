"""A gateway's memory of answers, for tests."""

from __future__ import annotations

from collections.abc import Callable, Collection

from failsoft.health.clock import Clock, ManualClock
from failsoft.serving.intents import INTENTS
from failsoft.serving.plan.plan import RoutingPlan
from failsoft.serving.watching.answer_memory import AnswerMemory
from failsoft.serving.watching.late_labels import LateLabels
from failsoft.serving.watching.outcomes import OutcomeBuffer
from failsoft.serving.watching.watch import Watch


def labels_of(
    plan: Callable[[], RoutingPlan],
    watch: Watch,
    buffer: OutcomeBuffer,
    *,
    clock: Clock | None = None,
    known: Collection[str] = (),
) -> LateLabels:
    """A hundred answers for a hundred seconds."""
    return LateLabels(
        AnswerMemory(clock or ManualClock(), max_answers=100, max_age_s=100.0),
        plan=plan,
        watch=watch,
        buffer=buffer,
        quality=INTENTS.kind,
        known=lambda: known,
    )
