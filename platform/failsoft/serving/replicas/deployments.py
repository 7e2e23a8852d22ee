"""The model replicas and the stand-alone fallback, as Ray Serve runs them.

Plain classes: the composition root makes deployments of them, so that they can be tested without a cluster.
"""

from __future__ import annotations

import asyncio
import math
import os
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from failsoft.artifacts.bundle import Bundle
from failsoft.artifacts.home import Home
from failsoft.errors import FailsoftError, NotLoadedError, SaturatedError, ServingError
from failsoft.health.clock import Clock, SystemClock, WorkingTime
from failsoft.health.faults import FaultKind
from failsoft.serving.arms.replies import ModelReply
from failsoft.serving.config import AppConfig
from failsoft.serving.kit import open_shelf
from failsoft.serving.pacing import Pace, spares
from failsoft.serving.plain import without_tensors
from failsoft.serving.plan.plan import Colour, RoutingPlan
from failsoft.serving.replicas.golden import check_golden
from failsoft.serving.replicas.holder import ReleaseHolder, Wanted, wanted_of
from failsoft.serving.replicas.host_shelf import HostShelf, memory_folder
from failsoft.serving.replicas.slot import SlotHolder
from failsoft.serving.replicas.slot_memory import SlotMemory
from failsoft.serving.replicas.turns import ModelTurns
from failsoft.serving.rollout.controller import ControllerClient, controller_of, follow_plans
from failsoft.serving.seam import Loader, Measures, Predictor, RungAnswer
from failsoft.serving.watching.diary import diary

_RETRY_S = 2.0
"""A release that did not load is tried again this often: the disk may have been away."""
_TELL_AGAIN_S = 30.0
"""What this replica has loaded is told again this often: a controller that was restarted has forgotten it."""
_FAULT_POLL_S = 0.02
"""How soon a planned fault strikes; drills only."""


@dataclass(frozen=True, kw_only=True)
class _Loaded:
    """A release in memory."""

    model: Predictor
    measures: Measures


class ModelColour:
    """One replica of the blue or the green model: loads what the plan says and scores clean texts.

    Args:
        config: the app's settings.
        colour: which of the two it is.
        load: makes a model of a verified release; runs in a thread.
    """

    async def __init__(  # type: ignore[misc]  # Ray Serve awaits it
        self, config: AppConfig, colour: Colour, load: Loader
    ) -> None:
        home, clock = Home.find(config.home), SystemClock()
        self._config, self._clock, self._working = config, clock, WorkingTime()
        self._releases, self._colour, self._load = home.releases(clock), colour, load
        self._quality = config.task.kind
        self._diary = diary(home.ledger, clock, subject=f"{colour} model")
        self._compute = ThreadPoolExecutor(max_workers=1, thread_name_prefix="model")
        self._turns = ModelTurns(self._compute, clock)
        self._memory = SlotMemory(HostShelf(self._releases, memory_folder(home.root), clock))
        self._holder = self._make_holder(config.slots)
        name = f"{colour}-{uuid.uuid4().hex[:8]}"
        self._follower = follow_plans(controller_of(config), name=name)
        self._client = ControllerClient(controller_of(config), name=name)
        self._told, self._told_s = dict[str, Any](), clock.monotonic_s()
        await self._follower.start()
        await self._holder.want(wanted_of(self._follower.plan, colour))
        self._tasks = [*self._follower.tasks, asyncio.create_task(self._keep_loaded(), name="loading releases")]
        if config.allow_planned_faults:
            sign = home.faults / FaultKind.BROKEN_WEIGHTS
            self._tasks.append(asyncio.create_task(self._await_fault(sign), name="planned faults"))

    async def predict(self, texts: Sequence[Any], within_s: float = math.inf) -> ModelReply:
        """Score clean texts or instances in one batch.

        Args:
            texts: what to score.
            within_s: how long its callers wait from now on; a call that comes to its turn later is not begun.

        Raises:
            NotLoadedError: a release is on its way.
            SaturatedError: its callers had left when it came to its turn.
            ServingError: no release is loaded, and none will be.
        """
        held = self._holder.held
        if held is None and self._holder.loading:
            raise NotLoadedError(
                f"{self._colour} is reading the release that is wanted; the fallback answers meanwhile"
            )
        if held is None:
            raise ServingError(
                f"{self._colour} has no release loaded: {self._holder.refusal or 'the plan asks for none'}"
            )
        model = held.predictor.model
        due = Due(until_s=self._turns.came_s() + within_s, clock=self._clock, working=self._working)
        only_computes = getattr(model, "only_computes", False) is True
        timed = partial(due.timed, model.predict, texts)
        scores, took_ms = await self._turns.score(timed, only_computes=only_computes)
        return ModelReply(
            scores=scores,
            measures=held.predictor.measures,
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
        } | self._holder.status()

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
            await self._keep_at_hand(plan)
            await self._follower.changed(timeout_s=_RETRY_S, known_epoch=plan.epoch)

    async def _keep_at_hand(self, plan: RoutingPlan) -> None:
        """With one slot: what a swap back needs; and let the controller show what this replica has loaded."""
        held = await self.describe()
        if self._one_slot:
            self._memory.keep_for(plan)
            held |= await asyncio.to_thread(self._memory.status)
        now_s = self._clock.monotonic_s()
        if held != self._told or now_s - self._told_s > _TELL_AGAIN_S:
            with suppress(FailsoftError):  # told again after the next look
                await self._client.holds(held)
                self._told, self._told_s = held, now_s

    def _make_holder(self, slots: int) -> ReleaseHolder[_Loaded] | SlotHolder[_Loaded]:
        self._one_slot = slots == 1
        if not self._one_slot:
            return ReleaseHolder(self._open, self._refused)
        return SlotHolder(
            self._open_in_slot,
            on_refusal=self._refused,
            on_swap=lambda swap: self._diary.record("release_swapped", swap.in_words(), took_s=swap.took_s),
            clock=self._clock,
            let_go=lambda loaded: self._compute.submit(_close, loaded.model).result(),  # behind the last call of it
        )

    def _open(self, release: str) -> _Loaded:
        """A release whose every byte was verified and that answers its golden inputs as it did when it was made."""
        pace = Pace(
            self._config.loading,
            self._clock,
            spare=lambda: spares(self._follower.plan, self._colour),
            on_hurry=lambda why: self._diary.record("loading_hurried", why, release=release),
        )
        return self._make(Bundle.of(self._releases.open(release, beat=pace.beat)), pace.beat)

    def _open_in_slot(self, release: str) -> tuple[_Loaded, bool]:
        bundle, from_memory = self._memory.open(release)
        return self._make(bundle), from_memory

    def _make(self, bundle: Bundle, beat: Callable[[], None] = lambda: None) -> _Loaded:
        model = self._load(bundle)
        beat()
        measures = bundle.measures()
        check_golden(model, bundle, self._quality, measures, beat=beat)
        return _Loaded(model=model, measures=measures)

    def _refused(self, wanted: Wanted, why: str) -> None:
        self._diary.record("release_refused", why, release=wanted.release, load_generation=wanted.load_generation)

    async def _await_fault(self, sign: Path) -> None:
        """Break what is loaded while the fault's file is there, once for each load."""
        broken: object = None
        while True:
            held = self._holder.held
            if held is not None and held is not broken and sign.exists():  # noqa: ASYNC240 -- a drill's own file on the local disk
                broken = held
                why = _break(held.predictor.model)
                self._diary.record("planned_fault", why, fault=FaultKind.BROKEN_WEIGHTS)
            await asyncio.sleep(_FAULT_POLL_S)


class Fallback:
    """The fallback ladder behind a handle, for callers that want it without the gateway."""

    def __init__(self, config: AppConfig) -> None:
        releases = Home.find(config.home).releases(SystemClock())
        self._ladder = open_shelf(releases, config.release, config.task).kit.ladder

    async def predict(self, texts: Sequence[Any]) -> list[RungAnswer]:
        """Answer some clean texts or instances; never fails."""
        return [self._ladder.answer(text, "asked for by handle") for text in texts]


@dataclass(frozen=True, kw_only=True)
class Due:
    """When the callers of a call will have left."""

    until_s: float
    clock: Clock
    working: Clock
    """Goes on while the model works, and stands while a busy machine keeps it waiting."""

    def timed(self, predict: Callable[[Sequence[Any]], Any], texts: Sequence[Any]) -> tuple[Any, float]:
        """The scores, and how many ms the model alone took: timed where it runs, behind the queue for its thread.

        Raises:
            SaturatedError: nobody waits any more. A model that hung and came back would else work off, call by call,
                what nobody wants, while those who came since wait behind it.
        """
        late_s = self.clock.monotonic_s() - self.until_s
        if late_s > 0.0:
            raise SaturatedError(f"its callers had left {late_s:.2f} s before it came to its turn")
        began_s = self.working.monotonic_s()
        scores = without_tensors(predict(texts))
        return scores, (self.working.monotonic_s() - began_s) * 1000.0


def _close(model: Predictor) -> None:
    """Let a model give back what it holds on its device, if it knows how; the rest goes with its last reference."""
    close = getattr(model, "close", None)
    if close is not None:
        close()


def _break(model: Predictor) -> str:
    """Spoil what is in memory, if this model knows how: a drill's planned fault. A load from disk heals it."""
    spoil = getattr(model, "break_weights", None)
    if spoil is None:
        return "this model has no break_weights(): nothing was spoilt"
    spoil()
    return "weights were shuffled in memory"
