"""Requests that went wrong, tried again on any release in this process: what each net says of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from failsoft.artifacts.bundle import Bundle
from failsoft.health.clock import Clock
from failsoft.serving.task import AppSpec, Task
from serve_apps.intent_ner import SPEC
from serve_apps.probe import answerer_of

_OF_EVERY_ANSWER = frozenset(
    {
        "request_id",
        "confidence",
        "source",
        "degrade_reason",
        "refused_confidence",
        "release",
        "stage",
        "epoch",
        "latency_ms",
    }
)


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """What the nets made of one request."""

    asked: Any
    reads_as: str
    """What the model got."""
    verdict: str
    """Of the sanitizer: clean, repaired or hopeless."""
    repairs: Mapping[str, int]
    oov_share: float | None
    """Share of its words that training never saw; None: unknown."""
    source: str
    confidence: float | None
    """Of the answer that a caller would get."""
    refused_confidence: float | None
    """Of the model's own answer, when a net refused it."""
    why: str
    """Why not the model; empty when it was."""
    answer: Mapping[str, Any]
    """What this app's answers hold beside what every answer does."""


def replay(bundle: Bundle, items: Sequence[Any], clock: Clock, spec: AppSpec = SPEC) -> list[Replayed]:
    """Answer each of them by the path of a gateway with this release in service.

    Args:
        bundle: the release.
        items: texts or instances as callers wrote them; of one that the app's schema refuses that is said.
        clock: measures.
        spec: the app that serves it; the example's.

    Raises:
        FailsoftError: the release can't be loaded.
    """
    answerer, task = answerer_of(bundle, clock, spec), spec.task()
    policy = task.inputs.policy_of(bundle)

    async def one(number: int, asked: Any) -> Replayed:
        try:
            item = _read(task, asked)
        except ValidationError as error:
            return _misfit(asked, error)
        cleaned = task.inputs.clean(item, policy)
        answer = await answerer.answer(item, key=str(number), request_id=str(number))
        return Replayed(
            asked=asked,
            reads_as=str(cleaned.text),
            verdict=str(cleaned.verdict),
            repairs=dict(cleaned.repairs),
            oov_share=cleaned.oov_share,
            source=answer.source,
            confidence=answer.confidence,
            refused_confidence=answer.refused_confidence,
            why=answer.degrade_reason or "",
            answer=answer.model_dump(mode="json", exclude=set(_OF_EVERY_ANSWER)),
        )

    async def all_of_them() -> list[Replayed]:
        return [await one(number, item) for number, item in enumerate(items)]

    return asyncio.run(all_of_them())


def _read(task: Task, asked: Any) -> Any:
    """As the gateway reads it: an instance by the app's schema, a text as it is."""
    form = task.inputs.request()
    return asked if "instance" not in form.model_fields else form.model_validate({"instance": asked}).items[0]


def _misfit(asked: Any, error: ValidationError) -> Replayed:
    """One that has lost a field that is hidden, or was asked of another app."""
    said = error.errors(include_url=False, include_input=False, include_context=False)[0]["msg"]
    return Replayed(
        asked=asked,
        reads_as="",
        verdict="not read",
        repairs={},
        oov_share=None,
        source="nobody",
        confidence=None,
        refused_confidence=None,
        why=f"the app's schema refuses it: {said}",
        answer={},
    )
