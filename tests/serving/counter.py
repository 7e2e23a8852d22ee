"""A gateway's answering with everything around it scripted; its time is made up, so that no busy machine is late."""

from __future__ import annotations

from failsoft.health.clock import Clock, ManualClock
from failsoft.health.window import Outcome
from failsoft.serving.config import GatewayConfig
from failsoft.serving.intake.sanitizer import TextPolicy
from failsoft.serving.intents import INTENTS
from failsoft.serving.plan.plan import Arm, Colour, RoutingPlan
from failsoft.serving.request import Answerer, Situation
from failsoft.serving.visit import Waits
from failsoft.serving.web.messages import PredictAnswer
from tests.serving.fakes import Notes, ScriptedArm, ladder, plan


class Counter:
    """Asks the answerer as a caller would, and keeps what it noted."""

    def __init__(self, now: RoutingPlan | None = None, *, deadline_ms: float = 250.0) -> None:
        self.plan = now or plan()
        self.blue, self.green, self.notes = ScriptedArm(), ScriptedArm(), Notes()
        self.config, self.subject_policy = GatewayConfig(deadline_ms=deadline_ms), TextPolicy()
        self.timeout_ms: float | None = None
        self.clock = ManualClock()
        self.answerer = self.with_clock(self.clock)

    def with_clock(self, clock: Clock) -> Answerer:
        return Answerer(
            situation=lambda: Situation(
                plan=self.plan, text_policy=TextPolicy(), subject_policy=self.subject_policy, ladder=ladder()
            ),
            models={Colour.BLUE: self.blue, Colour.GREEN: self.green},
            journal=self.notes,
            clock=clock,
            config=self.config,
            task=INTENTS,
        )

    async def ask(self, text: str = "play some jazz", *, key: str = "caller") -> PredictAnswer:
        answer = await self.answerer.answer(text, key=key, request_id="q1", waits=Waits(timeout_ms=self.timeout_ms))
        assert isinstance(answer, PredictAnswer)
        return answer

    @property
    def noted(self) -> list[tuple[Arm, Outcome]]:
        return [(seen.arm, seen.outcome) for seen in self.notes.seen]
