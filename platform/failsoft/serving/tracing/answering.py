"""The same answering with each step written down. A gateway that traces nothing does not have this class at all."""

from __future__ import annotations

from typing import Any

from failsoft.serving.arms.readings import NoReading, Reading
from failsoft.serving.intake.sanitizer import Cleaned, TextPolicy
from failsoft.serving.plan.plan import Arm, Colour
from failsoft.serving.request import Answerer
from failsoft.serving.tracing.spans import HERE, Span, Step
from failsoft.serving.tracing.tracer import Tracer
from failsoft.serving.visit import NOW, Allowance, Situation, Visit, Waits
from failsoft.serving.web.messages import Answer

_IN_SERVICE = "none"
"""The word for an answer of the model in service."""


class TracedAnswerer(Answerer):
    """Answers as :class:`Answerer` does. A copy that is mirrored lies in no trace: its caller was answered long ago.

    Args:
        tracer: keeps the traces of answers that the model in service did not give.
        parts: what an :class:`Answerer` is made from.
    """

    def __init__(self, tracer: Tracer, **parts: Any) -> None:
        super().__init__(**parts)
        self._tracer = tracer

    async def answer(
        self,
        text: Any,
        *,
        key: str,
        request_id: str,
        row: int = 0,
        waits: Waits = NOW,
        caller: int | None = None,
    ) -> Answer:
        """See :meth:`Answerer.answer`."""
        with Step("failsoft.answer") as span:
            span.attributes |= {"failsoft.request_id": request_id, "failsoft.row": row}
            return await super().answer(text, key=key, request_id=request_id, row=row, waits=waits, caller=caller)

    def _choose(self, key: str) -> tuple[Situation, Arm]:
        with Step("failsoft.choose_arm") as span:
            now, arm = super()._choose(key)
            span.attributes |= {"failsoft.arm": arm, "failsoft.share": now.plan.share}
            _say_plan(span, now)
        return now, arm

    def _clean(self, text: Any, policy: TextPolicy | None) -> Cleaned:
        with Step("failsoft.clean") as span:
            cleaned = super()._clean(text, policy)
            span.attributes |= {"failsoft.cleanliness": cleaned.verdict, "failsoft.repaired": cleaned.is_malformed}
        return cleaned

    async def _ask(self, visit: Visit, colour: Colour, time: Allowance) -> Reading | NoReading:
        """The time in this gateway's line is the difference between this span and that of the call in it."""
        with Step("failsoft.ask") as span:
            span.attributes |= {
                "failsoft.arm": visit.arm,
                "failsoft.colour": colour,
                "failsoft.time_left_ms": round(time.left_s * 1000, 3),
            }
            reading = await super()._ask(visit, colour, time)
            span.attributes["failsoft.verdict"] = reading.outcome
            if isinstance(reading, Reading):
                span.attributes |= {"failsoft.release": reading.release, "failsoft.usable": reading.usable}
        return reading

    def _from_ladder(self, visit: Visit, *, why: str, refused: Reading | NoReading | None = None) -> Answer:
        with Step("failsoft.fallback") as span:
            answer = super()._from_ladder(visit, why=why, refused=refused)
            span.attributes["failsoft.source"] = answer.source
        return answer

    def _tell(self, visit: Visit, answer: Answer) -> None:
        """Before the journal hears of it: what is kept of the request there names the trace, if that is kept."""
        here = HERE.get()
        if here is not None:
            _say_answer(here.span, visit, answer)
            if visit.ending.why != _IN_SERVICE:
                here.trace.root.attributes["failsoft.degrade_reason"] = visit.ending.why
                self._tracer.replaced(here.trace)
        super()._tell(visit, answer)


def _say_plan(span: Span, now: Situation) -> None:
    span.attributes |= {"failsoft.stage": now.plan.stage, "failsoft.epoch": now.plan.epoch}


def _say_answer(span: Span, visit: Visit, answer: Answer) -> None:
    """The reason is a word. Its sentence, which may hold what a caller wrote, is in the answer itself."""
    _say_plan(span, visit.now)
    span.attributes |= {"failsoft.source": answer.source, "failsoft.degrade_reason": visit.ending.why}
    if answer.release is not None:
        span.attributes["failsoft.release"] = answer.release
