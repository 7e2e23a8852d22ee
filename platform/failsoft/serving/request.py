"""Answering one request. It always ends in an answer: the model's when that is credible and in time, else the ladder's.

The first rung of the ladder is the previous release, where the plan has it stand in; the others are in this process.
Pure of HTTP and of Ray: models are asked through :class:`ModelArm`, which hides how a call travels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from failsoft.health.clock import Clock
from failsoft.health.window import Outcome
from failsoft.serving.answers import from_model, from_rung
from failsoft.serving.arms.asking import Asker, is_behind, is_stale
from failsoft.serving.arms.mirror import NotMirrored
from failsoft.serving.arms.readings import ModelArm, NoReading, Reading
from failsoft.serving.arms.replies import agreement
from failsoft.serving.config import GatewayConfig
from failsoft.serving.intake.sanitizer import Cleaned, Cleanliness, TextPolicy
from failsoft.serving.journal import Journal, Mirrored
from failsoft.serving.plan.plan import Arm, Colour, RoutingPlan, choose_arm, should_mirror
from failsoft.serving.task import Task
from failsoft.serving.visit import NOW, Allowance, Budget, Situation, Visit, Waits, Whose
from failsoft.serving.watching.answer_memory import Given
from failsoft.serving.watching.beside import NOTHING_BESIDE, Beside
from failsoft.serving.watching.outcomes import Seen
from failsoft.serving.web.forms import misfit
from failsoft.serving.web.messages import Answer

__all__ = ["Answerer", "Journal", "Mirrored", "ModelArm", "NoReading", "Reading", "Situation"]


_UNREADABLE = NoReading(outcome=Outcome.BAD_INPUT, why="no model could make sense of it")


class Answerer:
    """Answers requests.

    Args:
        situation: gives what is in force now.
        models: each colour's model.
        journal: told of every outcome.
        clock: measures latencies.
        config: deadlines.
        task: what is asked: how items are cleaned, when outputs agree, how an answer looks.
    """

    def __init__(
        self,
        *,
        situation: Callable[[], Situation],
        models: Mapping[Colour, ModelArm],
        journal: Journal,
        clock: Clock,
        config: GatewayConfig,
        task: Task,
    ) -> None:
        self._situation = situation
        self._asker = Asker(models, clock=clock)
        self._journal = journal
        self._clock = clock
        self._config = config
        self._inputs, self._form, self._quality = task.inputs, task.answers, task.kind

    def resting(self) -> dict[str, str]:
        """Colours that do not stand in now, and why."""
        return self._asker.resting()

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
        """Answer one item; never raises for anything that it or a model may do.

        Args:
            text: the text or instance as the caller wrote it.
            key: the same one stays with the same model.
            request_id: comes back in the answer.
            row: place of the item in its request.
            waits: since when the caller waits, and how long it will.
            caller: number of whose request it is; None: nobody knows.
        """
        began_s = self._clock.monotonic_s() if waits.began_s is None else waits.began_s
        whose = Whose(key=key, request_id=request_id, caller=caller, row=row)
        visit = self._enter(text, whose, began_s=began_s, timeout_ms=waits.timeout_ms)
        hopeless = visit.cleaned.verdict is Cleanliness.HOPELESS
        answer = self._without_a_model(visit) if hopeless else await self._from_chosen_arm(visit)
        self._tell(visit, answer)
        self._mirror_if_chosen(visit, answer)
        return answer

    async def answer_mirrored(self, copy: Mirrored) -> None:
        """Let the subject answer a copied request and note how that went; the caller was answered long ago."""
        started_s, whole_s = self._clock.monotonic_s(), self._config.mirror_deadline_ms / 1000
        reading = await self._asker.ask(copy.plan.subject, copy.text, Allowance(left_s=whole_s, whole_s=whole_s))
        agreed = agreement(self._quality, reading.output, copy.live_output) if isinstance(reading, Reading) else None
        seen = self._seen(copy.plan, Arm.SUBJECT, reading, since_s=started_s, caller=copy.caller)
        beside = _beside(reading, seen, copy)
        given = _given(reading, copy.request_id, copy.row) if copy.request_id else None
        self._note(copy.plan, reading, replace(seen, mirrored=True, agreed=agreed, beside=beside, given=given))

    def _enter(self, text: Any, whose: Whose, *, began_s: float, timeout_ms: float | None) -> Visit:
        now, arm = self._choose(whose.key)
        with_previous = now.plan.stand_in is not None
        return Visit(
            key=whose.key,
            request_id=whose.request_id,
            row=whose.row,
            caller=whose.caller,
            now=now,
            budget=Budget.of(self._config, began_s=began_s, caller_ms=timeout_ms, with_previous=with_previous),
            arm=arm,
            text=text,
            cleaned=self._clean(text, now.subject_policy if arm is Arm.SUBJECT else now.text_policy),
        )

    def _choose(self, key: str) -> tuple[Situation, Arm]:
        """What the request lives under, and who is to answer it."""
        now = self._situation()
        return now, choose_arm(now.plan, key)

    def _clean(self, text: Any, policy: TextPolicy | None) -> Cleaned:
        return self._inputs.clean(text, policy)

    async def _ask(self, visit: Visit, colour: Colour, time: Allowance) -> Reading | NoReading:
        """The model of the visit's arm, within its time."""
        if visit.arm is Arm.SUBJECT:
            return await self._asker.ask(colour, visit.cleaned.text, time)
        return await self._asker.ask_stand_in(visit.now.plan, colour, visit.cleaned.text, time)

    def _tell(self, visit: Visit, answer: Answer) -> None:
        """The journal hears of the answer before the caller does."""
        self._journal.answered(answer, visit.row, visit.ending.why, visit.text, caller=visit.caller)

    def _without_a_model(self, visit: Visit) -> Answer:
        """The ladder's answer to what no model could read. Counted as bad input, which is held against no model."""
        plan = visit.now.plan
        seen = self._seen(plan, Arm.SUBJECT, _UNREADABLE, since_s=visit.budget.began_s, caller=visit.caller)
        self._note(plan, _UNREADABLE, seen)
        return self._from_ladder(visit, why=visit.cleaned.why or _UNREADABLE.why)

    async def _from_chosen_arm(self, visit: Visit) -> Answer:
        """The chosen model's answer, unless it will not do, or the model was left while it worked on it.

        An ill model has some answers on their way when it is found ill. They would be given for one more deadline.
        """
        plan, colour = visit.now.plan, visit.colour
        if colour is None:
            return self._from_ladder(visit, why=_held_back(plan))
        apart = self._journal.holds_back(visit.caller) if visit.arm is Arm.SUBJECT else None
        if apart is not None:
            return self._from_ladder(visit, why=apart)
        reading, answer = await self._ask_chosen(visit, colour)
        now, why = self._situation(), reading.why
        if now.plan is not plan and not now.plan.lets_answer(colour):  # left meanwhile
            visit, answer, why = replace(visit, now=now), None, _held_back(now.plan)
        if answer is not None:
            return answer
        return await self._from_previous(visit, reading) or self._from_ladder(visit, why=why, refused=reading)

    async def _ask_chosen(self, visit: Visit, colour: Colour) -> tuple[Reading | NoReading, Answer | None]:
        """What the visit's arm says, noted as evidence; and the answer that it makes, if it may be given.

        A replica that could not load what the plan asks for goes on with what it has, the very weights, maybe, that
        were found ill. Nothing that it says counts, so nobody would ever notice: no caller gets it.
        """
        asked_s = self._clock.monotonic_s()
        reading, answer = self._in_form(visit, await self._ask(visit, colour, visit.budget.for_model(asked_s)))
        told = {"repaired": visit.cleaned.is_malformed, "given": _given(reading, visit.request_id, visit.row)}
        seen = self._seen(visit.now.plan, visit.arm, reading, since_s=asked_s, caller=visit.caller, **told)
        self._note(visit.now.plan, reading, seen)
        if isinstance(reading, Reading) and is_behind(visit.now.plan, colour, reading):
            return NoReading(outcome=Outcome.ERROR, why=f"{colour} has not loaded what the plan asks for"), None
        return reading, answer

    async def _from_previous(self, visit: Visit, refused: Reading | NoReading) -> Answer | None:
        """The stand-in's answer where the subject's will not do; None when it has none either, or is not to be asked.

        Load that one model sheds is not put upon the next: both would be saturated. What comes of it is no evidence for
        the comparison of both models: the texts that come this way are those which the subject found hard.
        """
        plan, colour = visit.now.plan, visit.now.plan.stand_in
        if visit.arm is not Arm.SUBJECT or colour is None or refused.outcome is Outcome.SHED:
            return None
        visit = self._as_stand_in_wants_it(visit)
        asked_s = self._clock.monotonic_s()
        time = visit.budget.for_previous(asked_s)
        if visit.cleaned.verdict is Cleanliness.HOPELESS or not time.left_s > 0.0:
            return None
        reading, answer = self._in_form(visit, await self._ask(visit, colour, time), instead_of=refused)
        seen = self._seen(plan, Arm.STAND_IN, reading, since_s=asked_s, caller=visit.caller, rescue=True)
        self._note(plan, reading, seen)
        return None if isinstance(reading, Reading) and is_stale(plan, colour, reading) else answer

    def _in_form(
        self, visit: Visit, reading: Reading | NoReading, *, instead_of: Reading | NoReading | None = None
    ) -> tuple[Reading | NoReading, Answer | None]:
        """The model's answer as the app gives it, where it may be given; one that the app's form refuses is weak."""
        if isinstance(reading, NoReading) or not reading.usable:
            return reading, None
        try:
            now_s = self._clock.monotonic_s()
            return reading, from_model(self._form, visit, reading, now_s=now_s, instead_of=instead_of)
        except ValidationError as error:
            return replace(reading, outcome=Outcome.WEAK, usable=False, why=misfit(error)), None

    def _as_stand_in_wants_it(self, visit: Visit) -> Visit:
        """The same request for the other arm. While the subject serves, the stand-in's own policy is not at hand."""
        now = visit.now
        same = now.text_policy == now.subject_policy
        cleaned = visit.cleaned if same else self._clean(visit.text, now.text_policy)
        return replace(visit, arm=Arm.STAND_IN, cleaned=cleaned)

    def _from_ladder(self, visit: Visit, *, why: str, refused: Reading | NoReading | None = None) -> Answer:
        rung = visit.now.ladder.answer(visit.cleaned.text, why)
        return from_rung(self._form, visit, rung, why=why, now_s=self._clock.monotonic_s(), refused=refused)

    def _seen(self, plan: RoutingPlan, arm: Arm, reading: Reading | NoReading, *, since_s: float, **more: Any) -> Seen:
        """How a call ended; ``more`` is what only the asker knows of it."""
        latency_ms = (self._clock.monotonic_s() - since_s) * 1000
        if isinstance(reading, NoReading):
            return Seen(epoch=plan.epoch, arm=arm, outcome=reading.outcome, latency_ms=latency_ms, **more)
        return Seen(
            epoch=plan.epoch,
            arm=arm,
            outcome=reading.outcome,
            latency_ms=latency_ms,
            model_ms=reading.model_ms,
            together=reading.together,
            label=reading.label,
            oov_share=reading.oov_share,
            words=reading.words,
            confidence=reading.confidence,
            entropy=reading.entropy,
            margin=reading.margin,
            **more,
        )

    def _note(self, plan: RoutingPlan, reading: Reading | NoReading, seen: Seen) -> None:
        """Hand on what was seen, unless it is about another release, or an older load of it, than the plan means."""
        colour = plan.subject if seen.arm is Arm.SUBJECT else plan.stand_in
        if isinstance(reading, Reading) and colour is not None and is_stale(plan, colour, reading):
            self._journal.stale(colour)
        else:
            self._journal.note(seen)

    def _mirror_if_chosen(self, visit: Visit, answer: Answer) -> None:
        now = visit.now
        if not should_mirror(now.plan, visit.key):
            return
        same = now.subject_policy == now.text_policy
        cleaned = visit.cleaned if same else self._clean(visit.text, now.subject_policy)
        if Cleanliness.HOPELESS in (visit.cleaned.verdict, cleaned.verdict):
            self._journal.not_mirrored(NotMirrored.UNREADABLE)
            return
        copy = Mirrored(
            text=cleaned.text,
            plan=now.plan,
            live_output=getattr(answer, self._form.field),
            caller=visit.caller,
            live_confidence=math.nan if answer.confidence is None else answer.confidence,
            live_latency_ms=answer.latency_ms,
            request_id=visit.request_id,
            row=visit.row,
        )
        self._journal.mirror(copy)


def _held_back(plan: RoutingPlan) -> str:
    """Why a plan lets a model answer nobody, in words."""
    return f"{plan.stage}: {plan.why}"


def _given(reading: Reading | NoReading, request_id: str, row: int) -> Given | None:
    """What a label may be held against: an answer that will do."""
    if isinstance(reading, NoReading) or not reading.usable:
        return None
    return Given(request_id, row, reading.release, reading.load_generation, reading.output)


def _beside(reading: Reading | NoReading, seen: Seen, copy: Mirrored) -> Beside:
    if isinstance(reading, NoReading):
        return NOTHING_BESIDE
    return Beside.pair(
        confidence=reading.confidence,
        live_confidence=copy.live_confidence,
        latency_ms=seen.latency_ms,
        live_latency_ms=copy.live_latency_ms,
    )
