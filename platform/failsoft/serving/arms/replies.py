"""What a model replica sends to a gateway, and what the gateway makes of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

from failsoft.health.window import Outcome
from failsoft.serving.arms.readings import Reading
from failsoft.serving.plain import as_plain
from failsoft.serving.seam import Judged, Quality, unusable
from failsoft.serving.web.messages import Entity
from failsoft.serving.web.problems import whole


@dataclass(frozen=True, kw_only=True)
class ModelReply:
    """Raw scores, and which load of which release they come from. The gateway judges: a model is no judge of itself."""

    scores: Any
    """Of the app's own kind; see :class:`failsoft.serving.seam.Predictor`."""
    measures: Mapping[str, float]
    """The release's calibration and whatever else was measured of it."""
    release: str
    load_generation: int
    took_ms: float = math.nan
    """The model's own time for the whole batch, without any queue; NaN: not measured."""

    def __reduce__(self) -> tuple[Any, ...]:
        """How it is pickled: Ray's pickler needs longer for the fields of a dataclass than for a tuple."""
        return _sent, (self.scores, dict(self.measures), self.release, self.load_generation, self.took_ms)


def _sent(scores: Any, measures: Mapping[str, float], release: str, load_generation: int, took_ms: float) -> ModelReply:
    return ModelReply(
        scores=scores, measures=measures, release=release, load_generation=load_generation, took_ms=took_ms
    )


def read_reply(reply: ModelReply, quality: Quality, *, texts: int) -> list[Reading]:
    """One judged reading for each of ``texts`` items, in order; whatever does not fit them is unusable.

    Raises:
        Exception: what the quality kind raised over these scores; the caller counts it as an error of the model.
    """
    judged = quality.judge(reply.scores, rows=texts, measures=reply.measures)
    if len(judged) != texts:
        judged = [unusable(f"{len(judged)} answers came for {texts} questions")] * texts
    return [_reading(reply, checked(row), together=texts) for row in judged]


def checked(judged: Judged) -> Judged:
    """The judgement, unless it calls good what is none, or can't be handed on.

    None is: a missing answer, one that JSON can't carry or with a number that is NaN, a confidence that is no share.
    """
    flaw = _flaw(judged)
    if flaw:
        return unusable(flaw)
    try:
        output = as_plain(judged.output)
    except (TypeError, ValueError, RecursionError) as error:
        return _refused(judged, None, str(error))
    why = "" if 0.0 <= judged.confidence <= 1.0 else f"confidence is {judged.confidence}"
    if output is None:
        why = "no answer"
    if why:
        return _refused(judged, output, why)
    if not judged.reason.isascii():
        judged = judged._replace(reason=whole(judged.reason))
    return judged if output is judged.output else judged._replace(output=output)


def _refused(judged: Judged, output: Any, why: str) -> Judged:
    reason = whole(judged.reason or why)
    return judged._replace(output=output, outcome=Outcome.WEAK, usable=False, reason=reason)


def _flaw(judged: Any) -> str:
    """What in a judgement of anybody's kind is of another type than promised: it would fail where it is counted."""
    if not isinstance(judged, Judged):
        return f"a {type(judged).__name__} is no judgement"
    for name in ("confidence", "oov_share", "words", "entropy", "margin"):
        if not isinstance(getattr(judged, name), Real):
            return f"{name} is {getattr(judged, name)!r:.80}"
    for name in ("label", "reason"):
        if not isinstance(getattr(judged, name), str):
            return f"{name} is {getattr(judged, name)!r:.80}, which is no text"
    if judged.entities and not all(isinstance(entity, Entity) for entity in judged.entities):
        return "entities are none"
    return ""


def agreement(quality: Quality, one: Any, other: Any) -> bool | None:
    """Whether two outputs agree; None when nobody can say."""
    try:
        return bool(quality.agrees(one, other))
    except Exception:  # noqa: BLE001 -- anybody's code over anybody's outputs; the copy counts all the same
        return None


def _reading(reply: ModelReply, judged: Judged, *, together: int) -> Reading:
    return Reading(
        output=judged.output,
        confidence=float(judged.confidence),
        entities=judged.entities,
        label=judged.label,
        release=reply.release,
        load_generation=reply.load_generation,
        outcome=judged.outcome,
        usable=judged.usable,
        why=judged.reason,
        model_ms=reply.took_ms,
        together=together,
        oov_share=judged.oov_share,
        words=float(judged.words),
        entropy=judged.entropy,
        margin=judged.margin,
    )
