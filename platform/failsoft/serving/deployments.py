"""The model replicas and the stand-alone fallback, as Ray Serve runs them.

Plain classes: the composition root makes deployments of them, so that they can be tested without a cluster.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from failsoft.artifacts.bundle import Bundle
from failsoft.artifacts.home import Home
from failsoft.errors import IncompatibleArtifactError, ServingError
from failsoft.health.clock import Clock, SystemClock
from failsoft.health.faults import FaultKind
from failsoft.health.ledger import Ledger, Side
from failsoft.models.scores import ScoreBatch
from failsoft.serving.config import AppConfig
from failsoft.serving.controller import ControllerConfig, follow_plans
from failsoft.serving.diary import Diary
from failsoft.serving.holder import ReleaseHolder, Wanted, wanted_of
from failsoft.serving.kit import open_shelf
from failsoft.serving.ladder import RungAnswer
from failsoft.serving.plan import Colour
from failsoft.serving.replies import ModelReply

_RETRY_S = 2.0
"""A release that did not load is tried again this often: the disk may have been away."""
_FAULT_POLL_S = 0.02
"""How soon a planned fault strikes; drills only."""


class ServedModel(Protocol):
    """What a model replica asks of a loaded release."""

    def predict(self, texts: Sequence[str]) -> ScoreBatch:
        """Score some clean texts in one batch."""
        ...

    def break_weights(self) -> None:
        """Spoil the weights in memory, as a drill's planned fault; a load from disk heals it."""
        ...


@dataclass(frozen=True, kw_only=True)
class _Loaded:
    """A release in memory."""

    model: ServedModel
    temperature: float


class ModelColour:
    """One replica of the blue or the green model: loads what the plan says and scores clean texts.

    Args:
        config: the app's settings.
        colour: which of the two it is.
        load: makes a model of a verified release; runs in a thread.
    """

    async def __init__(  # type: ignore[misc]  # Ray Serve awaits it
        self, config: AppConfig, colour: Colour, load: Callable[[Bundle], ServedModel]
    ) -> None:
        home, clock = Home.find(config.home), SystemClock()
        self._clock = clock
        self._releases, self._colour, self._load = home.releases(clock), colour, load
        self._diary = Diary(Ledger(home.ledger, clock, side=Side.SERVING, subject=f"{colour} model"))
        self._compute = ThreadPoolExecutor(max_workers=1, thread_name_prefix="model")
        self._holder = ReleaseHolder(self._open, self._refused)
        controller = ControllerConfig(home=str(config.home), release=config.release, profile=config.profile)
        self._follower = follow_plans(controller, name=f"{colour}-{uuid.uuid4().hex[:8]}")
        await self._follower.start()
        await self._holder.want(wanted_of(self._follower.plan, colour))
        self._tasks = [asyncio.create_task(self._keep_loaded(), name="loading releases")]
        if config.allow_planned_faults:
            sign = home.faults / FaultKind.BROKEN_WEIGHTS
            self._tasks.append(asyncio.create_task(self._await_fault(sign), name="planned faults"))

    async def predict(self, texts: Sequence[str]) -> ModelReply:
        """Score clean texts in one batch.

        Raises:
            ServingError: no release is loaded.
        """
        held = self._holder.held
        if held is None:
            raise ServingError(
                f"{self._colour} has no release loaded: {self._holder.refusal or 'the plan asks for none'}"
            )
        timed = partial(_timed, held.predictor.model.predict, texts, self._clock)
        scores, took_ms = await asyncio.get_running_loop().run_in_executor(self._compute, timed)
        return ModelReply(
            scores=scores,
            temperature=held.predictor.temperature,
            release=held.wanted.release,
            load_generation=held.wanted.load_generation,
            took_ms=took_ms,
        )

    async def describe(self) -> dict[str, Any]:
        """Which process this is and what it has loaded; for operators and drills."""
        held = self._holder.held
        return {
            "pid": os.getpid(),
            "release": held.wanted.release if held else None,
            "load_generation": held.wanted.load_generation if held else None,
            "refusal": self._holder.refusal,
        }

    async def check_health(self) -> None:
        """Called by Serve.

        Raises:
            ServingError: nothing is loaded though the plan asks for a release, or a background duty has ended.
        """
        if not self._holder.ready:
            raise ServingError(f"{self._colour} is not ready: {self._holder.refusal}")
        for task in self._tasks:
            if task.done():
                raise ServingError(f"{self._colour}: {task.get_name()} has ended: {task.exception()!r}")

    async def _keep_loaded(self) -> None:
        """Load what each new plan asks for; try a refused one again."""
        while True:
            plan = self._follower.plan
            await self._holder.want(wanted_of(plan, self._colour))
            await self._follower.changed(timeout_s=_RETRY_S, known_epoch=plan.epoch)

    def _open(self, release: str) -> _Loaded:
        """A release whose every byte was verified and that answers its golden inputs as it did when it was made."""
        bundle = Bundle.of(self._releases.open(release))
        model = self._load(bundle)
        check_golden(model, bundle)
        return _Loaded(model=model, temperature=bundle.calibration().temperature)

    def _refused(self, wanted: Wanted, why: str) -> None:
        self._diary.record("release_refused", why, release=wanted.release, load_generation=wanted.load_generation)

    async def _await_fault(self, sign: Path) -> None:
        """Break what is loaded while the fault's file is there, once for each load."""
        broken: object = None
        while True:
            held = self._holder.held
            if held is not None and held is not broken and sign.exists():  # noqa: ASYNC240 -- a drill's own file on the local disk
                broken = held
                held.predictor.model.break_weights()
                self._diary.record("planned_fault", "weights were shuffled in memory", fault=FaultKind.BROKEN_WEIGHTS)
            await asyncio.sleep(_FAULT_POLL_S)


class Fallback:
    """The fallback ladder behind a handle, for callers that want it without the gateway."""

    def __init__(self, config: AppConfig) -> None:
        releases = Home.find(config.home).releases(SystemClock())
        self._ladder = open_shelf(releases, config.release).kit.ladder

    async def predict(self, texts: Sequence[str]) -> list[RungAnswer]:
        """Answer some texts; never fails."""
        return [self._ladder.answer(text, "asked for by handle") for text in texts]


def _timed(
    predict: Callable[[Sequence[str]], ScoreBatch], texts: Sequence[str], clock: Clock
) -> tuple[ScoreBatch, float]:
    """The scores, and how many ms the model alone took: timed where it runs, behind the queue for its thread."""
    began_s = clock.monotonic_s()
    scores = predict(texts)
    return scores, (clock.monotonic_s() - began_s) * 1000.0


def check_golden(model: ServedModel, bundle: Bundle) -> None:
    """Also warms the model up.

    Raises:
        IncompatibleArtifactError: whole, but it does not answer as it did when it was made.
    """
    golden = bundle.golden()
    scores = model.predict([entry.text for entry in golden])
    for entry, logits_C in zip(golden, scores.intent_logits_BC, strict=True):  # C intents
        intent = scores.intents[int(np.argmax(logits_C))]
        if intent != entry.intent:
            raise IncompatibleArtifactError(
                f"release {bundle.name} answers {entry.text!r} with {intent}, but {entry.intent} when it was made; "
                "this machine computes something else: publish the release again here"
            )
