"""From what a model or a rung said to what the caller gets. The app's own form puts its output in."""

from __future__ import annotations

import math

from failsoft.health.window import Outcome
from failsoft.serving.arms.readings import NoReading, Reading
from failsoft.serving.intake.sanitizer import Cleanliness
from failsoft.serving.plan.plan import Arm, RoutingPlan, Stage
from failsoft.serving.seam import RungAnswer
from failsoft.serving.visit import Visit
from failsoft.serving.web.forms import AnswerForm
from failsoft.serving.web.messages import Answer, Entity, Source
from failsoft.serving.web.problems import whole


def from_model(
    form: AnswerForm, visit: Visit, reading: Reading, *, now_s: float, instead_of: Reading | NoReading | None = None
) -> Answer:
    """A model's answer.

    Args:
        form: of the app's answers.
        visit: the request; its arm is the one that answered.
        reading: what it said.
        now_s: for the latency.
        instead_of: what the subject said, when the stand-in answers because that would not do.
    """
    plan = visit.now.plan
    visit.ending.why = _why_not_in_service(visit, instead_of)
    said = {
        "request_id": visit.request_id,
        "confidence": reading.confidence,
        "source": _source_of(plan, visit.arm),
        "degrade_reason": _held_back(visit) if instead_of is None else instead_of.why,
        "refused_confidence": _finite_confidence(instead_of),
        "release": reading.release,
        "stage": plan.stage,
        "epoch": plan.epoch,
        "latency_ms": _latency_ms(visit, now_s),
    }
    return form.fill(reading.output, [_in_original(entity, visit) for entity in reading.entities], said)


def from_rung(
    form: AnswerForm,
    visit: Visit,
    rung: RungAnswer,
    *,
    why: str,
    now_s: float,
    refused: Reading | NoReading | None = None,
) -> Answer:
    """The fallback ladder's answer; ``refused`` is what a model said that would not do."""
    plan = visit.now.plan
    visit.ending.why = _why_no_model(visit, refused)
    said = {
        "request_id": visit.request_id,
        "confidence": rung.confidence,
        "source": rung.source,
        "degrade_reason": why,
        "refused_confidence": _finite_confidence(refused),
        "release": None,
        "stage": plan.stage,
        "epoch": plan.epoch,
        "latency_ms": _latency_ms(visit, now_s),
    }
    return form.fill(rung.output, [_in_original(entity, visit) for entity in rung.entities], said)


def _held_back(visit: Visit) -> str | None:
    """Why the release in service does not answer; None where it does."""
    plan = visit.now.plan
    return f"{plan.stage}: {plan.why}" if plan.stage is Stage.DEGRADED else None


def _why_not_in_service(visit: Visit, instead_of: Reading | NoReading | None) -> str:
    """A word for counting."""
    if instead_of is not None:
        return str(instead_of.outcome)
    return "stage" if visit.now.plan.stage is Stage.DEGRADED else "none"


def _why_no_model(visit: Visit, refused: Reading | NoReading | None) -> str:
    """A word for counting."""
    if refused is not None:
        return str(refused.outcome)
    if visit.cleaned.verdict is Cleanliness.HOPELESS:
        return str(Outcome.BAD_INPUT)
    return "stage" if visit.colour is None else "caller"


def _latency_ms(visit: Visit, now_s: float) -> float:
    return round((now_s - visit.budget.began_s) * 1000, 3)


def _finite_confidence(refused: Reading | NoReading | None) -> float | None:
    """What JSON can carry of it; a model gone bad may well give NaN."""
    confidence = refused.confidence if isinstance(refused, Reading) else math.nan
    return confidence if math.isfinite(confidence) else None


def _source_of(plan: RoutingPlan, arm: Arm) -> Source:
    if arm is Arm.STAND_IN:
        return Source.PREVIOUS
    return Source.PRIMARY if plan.stage is Stage.SERVING else Source.CANARY


def _in_original(entity: Entity, visit: Visit) -> Entity:
    """The same span in the caller's own text; half characters become U+FFFD, since JSON can't carry them.

    Where the item is an instance, there is no such text: the piece stays as its model or rung gave it.
    """
    if not isinstance(visit.text, str):
        return entity
    start, end = visit.cleaned.to_original(entity.start, entity.end)
    own = visit.text[start:end]
    if not own.isascii():
        own = whole(own)
    return Entity(start=start, end=end, slot=entity.slot, text=own, confidence=entity.confidence)
