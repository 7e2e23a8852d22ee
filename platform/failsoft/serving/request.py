"""Answering one request. It always ends in an answer: the model's when that is credible and in time, else the ladder's.

Pure of HTTP and of Ray: models are asked through :class:`ModelArm`, which hides how a call travels.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from failsoft.health.clock import Clock
from failsoft.health.window import Outcome
from failsoft.serving.config import GatewayConfig
from failsoft.serving.ladder import FallbackLadder
from failsoft.serving.messages import Entity, PredictAnswer, Source
from failsoft.serving.outcomes import Seen
from failsoft.serving.plan import Arm, Colour, RoutingPlan, Stage, choose_arm, should_mirror
from failsoft.serving.sanitizer import Cleaned, Cleanliness, TextPolicy, sanitize


@dataclass(frozen=True, kw_only=True)
class Reading:
    """A model's answer to one text, judged."""

    intent: str
    confidence: float
    entities: tuple[Entity, ...]
    """Spans refer to the text that the model was given."""
    release: str
    load_generation: int
    outcome: Outcome
    """GOOD or WEAK: what the answer says about the model."""
    usable: bool
    """Good enough to be given to this caller."""
    why: str
    """What is wrong with it; empty when nothing is."""


@dataclass(frozen=True, kw_only=True)
class NoReading:
    """A model gave no answer: late, failed or shed."""

    outcome: Outcome
    why: str


class ModelArm(Protocol):
    """One colour's model, however far away."""

    async def ask(self, text: str) -> Reading | NoReading:
        """Answer one clean text. Raises nothing but cancellation, which also stops the call."""
        ...


class Journal(Protocol):
    """Who wants to know how things went. Every method returns at once and never raises."""

    def note(self, seen: Seen) -> None:
        """One call of a model ended."""
        ...

    def stale(self, colour: Colour) -> None:
        """A model answered with another release or an older load than the plan asks for: no evidence either way."""
        ...

    def answered(self, answer: PredictAnswer) -> None:
        """One request was answered."""
        ...

    def mirror(self, copy: Mirrored) -> None:
        """The subject is to get a copy of this request, apart from the live path."""
        ...


@dataclass(frozen=True, kw_only=True)
class Situation:
    """What is in force at one moment; replaced whole, so that a request lives under one plan."""

    plan: RoutingPlan
    text_policy: TextPolicy
    """Of the release that serves."""
    subject_policy: TextPolicy
    """Of the plan's subject, which may be another release on trial."""
    ladder: FallbackLadder
    """Of the release that serves."""


@dataclass(frozen=True, kw_only=True)
class Mirrored:
    """A live request that the subject answers too, unseen by the caller."""

    text: str
    plan: RoutingPlan
    live_intent: str


_UNREADABLE = NoReading(outcome=Outcome.BAD_INPUT, why="nothing in the text can be read by the model")
_BUSY = NoReading(outcome=Outcome.SHED, why="the gateway was too busy to wait for the model")
_OVERSLEPT_S = 0.05
"""A deadline that is noticed so much too late was missed by this process; a healthy loop is a few ms late."""


@dataclass(frozen=True, kw_only=True)
class _Visit:
    """One request on its way."""

    key: str
    request_id: str
    started_s: float
    now: Situation
    arm: Arm
    text: str
    cleaned: Cleaned


class Answerer:
    """Answers requests.

    Args:
        situation: gives what is in force now.
        models: each colour's model.
        journal: told of every outcome.
        clock: measures latencies.
        config: deadlines.
    """

    def __init__(
        self,
        *,
        situation: Callable[[], Situation],
        models: Mapping[Colour, ModelArm],
        journal: Journal,
        clock: Clock,
        config: GatewayConfig,
    ) -> None:
        self._situation = situation
        self._models = models
        self._journal = journal
        self._clock = clock
        self._config = config
        self._budget_s = (config.deadline_ms - config.ladder_reserve_ms) / 1000
        """What the model may take: the deadline, less what the ladder needs afterwards."""

    async def answer(self, text: str, *, key: str, request_id: str, began_s: float | None = None) -> PredictAnswer:
        """Answer one text; never raises for anything that a text or a model may do.

        ``began_s``: when its request came, on this clock, if that was before now; the deadline counts from there.
        """
        visit = self._enter(text, key=key, request_id=request_id, began_s=began_s)
        if visit.cleaned.verdict is Cleanliness.HOPELESS:
            self._note(visit.now.plan, Arm.SUBJECT, _UNREADABLE, since_s=visit.started_s)
            answer = self._from_ladder(visit, why=_UNREADABLE.why)
        else:
            answer = await self._from_chosen_arm(visit)
        self._journal.answered(answer)
        self._mirror_if_chosen(visit, answer)
        return answer

    async def answer_mirrored(self, copy: Mirrored) -> None:
        """Let the subject answer a copied request and note how that went; the caller was answered long ago."""
        started_s, whole_s = self._clock.monotonic_s(), self._config.mirror_deadline_ms / 1000
        reading = await self._ask(copy.plan.subject, copy.text, left_s=whole_s, whole_s=whole_s)
        agreed = reading.intent == copy.live_intent if isinstance(reading, Reading) else None
        self._note(copy.plan, Arm.SUBJECT, reading, since_s=started_s, mirrored=True, agreed=agreed)

    def _enter(self, text: str, *, key: str, request_id: str, began_s: float | None) -> _Visit:
        started_s, now = self._clock.monotonic_s() if began_s is None else began_s, self._situation()
        arm = choose_arm(now.plan, key)
        cleaned = sanitize(text, now.subject_policy if arm is Arm.SUBJECT else now.text_policy)
        return _Visit(key=key, request_id=request_id, started_s=started_s, now=now, arm=arm, text=text, cleaned=cleaned)

    async def _from_chosen_arm(self, visit: _Visit) -> PredictAnswer:
        plan, arm = visit.now.plan, visit.arm
        colour = plan.subject if arm is Arm.SUBJECT else plan.stand_in
        if colour is None:
            return self._from_ladder(visit, why=f"{plan.stage}: {plan.why}")
        asked_s = self._clock.monotonic_s()
        left_s = max(0.0, self._budget_s - (asked_s - visit.started_s))
        reading = await self._ask(colour, visit.cleaned.text, left_s=left_s, whole_s=self._budget_s)
        self._note(plan, arm, reading, since_s=asked_s)
        if isinstance(reading, Reading) and reading.usable:
            return self._from_model(visit, arm, reading)
        return self._from_ladder(visit, why=reading.why, refused=reading)

    async def _ask(self, colour: Colour, text: str, *, left_s: float, whole_s: float) -> Reading | NoReading:
        """Late is only a model that had most of its time, and to which this process was not too busy to listen."""
        if not left_s > 0.0:
            return _BUSY
        asked_s = self._clock.monotonic_s()
        try:
            async with asyncio.timeout(left_s):
                return await self._models[colour].ask(text)
        except TimeoutError:
            overslept_s = self._clock.monotonic_s() - asked_s - left_s
            if overslept_s > _OVERSLEPT_S or left_s < whole_s / 2:
                return _BUSY
            return NoReading(outcome=Outcome.LATE, why=f"no answer of the model within {left_s * 1000:.0f} ms")

    def _note(
        self,
        plan: RoutingPlan,
        arm: Arm,
        reading: Reading | NoReading,
        *,
        since_s: float,
        mirrored: bool = False,
        agreed: bool | None = None,
    ) -> None:
        colour = plan.subject if arm is Arm.SUBJECT else plan.stand_in
        if isinstance(reading, Reading) and colour is not None and _is_stale(plan, colour, reading):
            self._journal.stale(colour)
            return
        latency_ms = (self._clock.monotonic_s() - since_s) * 1000
        self._journal.note(
            Seen(
                epoch=plan.epoch,
                arm=arm,
                outcome=reading.outcome,
                latency_ms=latency_ms,
                mirrored=mirrored,
                agreed=agreed,
            )
        )

    def _from_model(self, visit: _Visit, arm: Arm, reading: Reading) -> PredictAnswer:
        plan = visit.now.plan
        return PredictAnswer(
            request_id=visit.request_id,
            intent=reading.intent,
            confidence=reading.confidence,
            entities=[_in_original(entity, visit) for entity in reading.entities],
            source=_source_of(plan, arm),
            degrade_reason=None,
            release=reading.release,
            stage=plan.stage,
            epoch=plan.epoch,
            latency_ms=self._latency_ms(visit),
        )

    def _from_ladder(self, visit: _Visit, *, why: str, refused: Reading | NoReading | None = None) -> PredictAnswer:
        rung, plan = visit.now.ladder.answer(visit.cleaned.text, why), visit.now.plan
        return PredictAnswer(
            request_id=visit.request_id,
            intent=rung.intent,
            confidence=rung.confidence,
            entities=[_in_original(entity, visit) for entity in rung.entities],
            source=rung.source,
            degrade_reason=why,
            refused_confidence=_finite_confidence(refused),
            release=None,
            stage=plan.stage,
            epoch=plan.epoch,
            latency_ms=self._latency_ms(visit),
        )

    def _mirror_if_chosen(self, visit: _Visit, answer: PredictAnswer) -> None:
        now = visit.now
        if visit.cleaned.verdict is Cleanliness.HOPELESS or not should_mirror(now.plan, visit.key):
            return
        same = now.subject_policy == now.text_policy
        text = visit.cleaned.text if same else sanitize(visit.text, now.subject_policy).text
        self._journal.mirror(Mirrored(text=text, plan=now.plan, live_intent=answer.intent))

    def _latency_ms(self, visit: _Visit) -> float:
        return round((self._clock.monotonic_s() - visit.started_s) * 1000, 3)


def _finite_confidence(refused: Reading | NoReading | None) -> float | None:
    """What JSON can carry of it; a model gone bad may well give NaN."""
    confidence = refused.confidence if isinstance(refused, Reading) else math.nan
    return confidence if math.isfinite(confidence) else None


def _source_of(plan: RoutingPlan, arm: Arm) -> Source:
    if arm is Arm.STAND_IN:
        return Source.PREVIOUS
    return Source.PRIMARY if plan.stage is Stage.SERVING else Source.CANARY


def _in_original(entity: Entity, visit: _Visit) -> Entity:
    """The same span in the caller's own text; half characters become U+FFFD, since JSON can't carry them."""
    start, end = visit.cleaned.to_original(entity.start, entity.end)
    own = visit.text[start:end].encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return entity.model_copy(update={"start": start, "end": end, "text": own})


def _is_stale(plan: RoutingPlan, colour: Colour, reading: Reading) -> bool:
    wanted = plan.releases.get(colour), plan.load_generation.get(colour, 0)
    return (reading.release, reading.load_generation) != wanted
