"""The controller that owns the routing plan: calls come in, a clock ticks, plans go out. Free of Ray.

Calls may arrive twice, since the actor around it restarts and is asked again: each is idempotent, or numbered. What
changes or judges the rollout is done in a thread of its own (:mod:`failsoft.serving.rollout.desk`), since it waits for
storage; plans are read, and polls answered, without.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from failsoft import __version__
from failsoft.artifacts.home import Home
from failsoft.errors import ConfigError, PlanStoreError
from failsoft.health.clock import Clock, SystemClock
from failsoft.health.exporter import Exporter
from failsoft.health.ledger import Side
from failsoft.health.metric_book import MetricBook, Sink
from failsoft.serving.plan.plan import Colour, RoutingPlan, Stage
from failsoft.serving.plan.planstore import PlanStore
from failsoft.serving.plan.roll_call import RollCall
from failsoft.serving.plan.trips import Trip
from failsoft.serving.rollout.controller_config import ControllerConfig
from failsoft.serving.rollout.course import Course
from failsoft.serving.rollout.desk import Desk, Inbox
from failsoft.serving.rollout.duties import Duties
from failsoft.serving.rollout.gate_record import remembered
from failsoft.serving.rollout.rollout import Rollout
from failsoft.serving.rollout.rollout_metrics import RolloutMetrics
from failsoft.serving.rollout.shaping import no_higher
from failsoft.serving.rollout.stage_settings import StageSettings, stages_in_words
from failsoft.serving.rollout.stages import stage_named
from failsoft.serving.rollout.surroundings import HomeSurroundings
from failsoft.serving.rollout.verifying import Verifier
from failsoft.serving.watching.label_exchange import LabelPost, Place

__all__ = ["Controller", "ControllerConfig"]

_TICK_S = 0.1
_LOOK_S = 1.0
"""How often replicas are counted."""
_PATIENCE_S = 1.0
"""Whoever asks for a status waits so long for storage; then it hears what was known before, and that storage hangs."""

Look = Callable[[], Mapping[Colour, float]]
"""Counts replicas: for each colour that is known the share of its replicas that are ready."""


class Controller:
    """What runs inside the actor.

    Args:
        settings: a :class:`ControllerConfig` as a dict.
        look: counts replicas: share of each colour's that are ready; raises whatever it likes when it can't.
        sink: makes where metrics go; None: nowhere.
        end: ends this process, once another controller is found to have taken its place.
    """

    def __init__(
        self,
        settings: dict[str, Any],
        look: Look,
        sink: Callable[[], Sink] | None = None,
        end: Callable[[], None] = lambda: None,
    ) -> None:
        config = ControllerConfig(**settings)
        home, clock = Home.find(Path(config.home)), SystemClock()
        self._look_at_replicas, self._end, self._desk = look, end, Desk(clock)
        self._around = HomeSurroundings(home, clock, self._push)
        self._news, self._inbox = asyncio.Event(), Inbox(self._around.record)
        self._looking: asyncio.Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._roll_call, self._labels = RollCall(clock), LabelPost(clock)
        releases = home.releases(clock)
        self._verifier = Verifier(releases, clock, spare=self._is_answered_by_a_model, hurried=self._hurried)
        works = {"tick": self._tick, "look": self._look, "settings": self._follow_settings, "metrics": self._export}
        self._duties = Duties(works, lambda why: self._around.record("controller_duty_failed", why))
        self._settings = StageSettings(home.root, config.profile)
        policy = self._settings.read_or_by_hand()  # a controller that comes back leads on, whatever was written since
        course = Course(
            clock=clock,
            policy=policy,
            store=PlanStore(home.serving),
            around=self._around,
            rng=random.Random(),  # jitter must differ between clusters
            release=config.release,
        )
        self._rollout = Rollout(course)
        known = policy if self._settings.refusal is None else no_higher(policy, self._rollout.plan)
        self._rollout.adopt(known, slots=config.slots)
        self._say_if_refused()
        self._seen = self._rollout.status()
        self._book = MetricBook()
        self._book.whose["app"] = config.app
        self._exporter = None if sink is None else self._make_exporter(sink, releases.root, clock)

    def _make_exporter(self, sink: Callable[[], Sink], releases: Path, clock: Clock) -> Exporter:
        metrics = RolloutMetrics(self._book, self._told, remembered(releases), clock)
        return Exporter(self._book, sink, metrics.look, side=Side.SERVING, clock=clock)

    async def adopt(self, profile: str, slots: int | None = None, app: str = "") -> str:
        """Judge by another profile, and for another number of slots; those in force change nothing.

        ``app``: the Serve application that it is from now on; empty: as before.
        """
        self._book.whose["app"] = app or self._book.whose["app"]
        await self._do(partial(self._adopt, StageSettings(self._settings.root, profile), slots))
        return self._plan()

    def _adopt(self, settings: StageSettings, slots: int | None) -> None:
        self._rollout.adopt(settings.read(), slots=slots)
        self._settings = settings

    async def wait_plan(self, known_epoch: int, timeout_s: float, who: str = "") -> str:
        """The plan: at once if its epoch is not ``known_epoch``, else when it changes or time is up."""
        self._duties.keep_going()
        self._roll_call.heard(who, known_epoch)
        if known_epoch > self._rollout.plan.epoch:
            with suppress(PlanStoreError):  # too many wait for storage: the next poll says so again
                await self._do(partial(self._rollout.surpass, known_epoch))
        if self._rollout.plan.epoch == known_epoch:
            news = self._news
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await news.wait()
        return self._plan()

    async def report(self, batches: list[dict[str, Any]]) -> str:
        """Count outcomes, and judge at once when one of them is bad; the plan after that."""
        self._inbox.put(batches)
        await self._do(self._take)
        return self._plan()

    def _take(self) -> None:
        has_bad = False
        for batch in self._inbox.take():
            self._rollout.take(batch)
            has_bad = has_bad or batch.has_bad
        if has_bad:
            self._rollout.tick()

    async def hand_on(self, labels: list[tuple[int, Any]]) -> None:
        """Labels of answers that another gateway gave; see :meth:`LabelPost.put`."""
        self._labels.put(labels)

    async def wait_labels(self, place: Place, timeout_s: float) -> tuple[Place, list[tuple[int, Any]]]:
        """Labels that came after a place; see :meth:`LabelPost.after`."""
        return await self._labels.after(place, timeout_s)

    async def trip(self, trip: dict[str, Any]) -> str:
        """A gateway found a model ill; see :meth:`Rollout.trip`."""
        with suppress(PlanStoreError):  # recorded; that gateway holds the model back by itself and tells again
            await self._do(partial(self._rollout.trip, Trip.of(trip)))
        return self._plan()

    async def holds(self, name: str, held: dict[str, Any]) -> None:
        """A model replica says what it has loaded, and how long that took; for people."""
        self._roll_call.holds(name, held)

    async def force(self, for_s: float | None, why: str, by: str) -> str:
        """An operator's order; see :meth:`Rollout.force`."""
        await self._do(partial(self._rollout.force, for_s, why=why, by=by))
        return self._plan()

    async def restore(self, why: str, by: str) -> str:
        """The end of an order or of a rest; see :meth:`Rollout.restore`."""
        await self._do(partial(self._rollout.restore, why=why, by=by))
        return self._plan()

    async def propose(self, release: str, by: str, again: bool = False) -> str:  # noqa: FBT001, FBT002 -- a remote call
        """Let a release begin its way, once every byte of it is verified; see :meth:`Rollout.propose`."""
        await self._verifier.verify(release)
        await self._do(partial(self._rollout.propose, release, by=by, again=again))
        return self._plan()

    def _is_answered_by_a_model(self) -> bool:
        plan = self._rollout.plan
        return plan.stage is not Stage.DEGRADED or plan.stand_in is not None

    def _hurried(self, release: str, why: str) -> None:
        self._around.record("loading_hurried", why, release=release)

    async def abort(self, release: str, why: str, by: str) -> str:
        """Give a release up; see :meth:`Rollout.abort`."""
        await self._do(partial(self._rollout.abort, release, why=why, by=by))
        return self._plan()

    async def hold(self, release: str, why: str, by: str) -> str:
        """Keep a release in its stage; see :meth:`Rollout.hold`."""
        await self._do(partial(self._rollout.hold, release, why=why, by=by))
        return self._plan()

    async def resume(self, release: str, why: str, by: str) -> str:
        """Let a release that is held go on; see :meth:`Rollout.resume`."""
        await self._do(partial(self._rollout.resume, release, why=why, by=by))
        return self._plan()

    async def advance(self, release: str, from_stage: str, why: str, by: str) -> str:
        """Let a release into the next stage by hand; see :meth:`Rollout.advance`."""
        stage = stage_named(from_stage)
        await self._do(partial(self._rollout.advance, release, from_stage=stage, why=why, by=by))
        return self._plan()

    async def status(self) -> dict[str, Any]:
        """Everything known, for people; while storage hangs, what was known before, and that it hangs."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._do(self._look_at_rollout, own=True))
        looked, _ = await asyncio.wait({self._looking}, timeout=_PATIENCE_S)
        for look in looked:
            look.result()
        return self._told()

    def _look_at_rollout(self) -> None:
        self._seen = self._rollout.status()

    def _told(self) -> dict[str, Any]:
        process: dict[str, Any] = {"pid": os.getpid(), "version": __version__}
        process["events_not_recorded"] = self._around.unrecorded
        process |= {"profile": self._settings.profile, "settings_error": self._settings.refusal}
        hangs = self._desk.hangs(_PATIENCE_S)
        process |= {} if hangs is None else {"store_error": f"{hangs}; the plan in force stays so meanwhile"}
        return self._seen | process | self._roll_call.status()

    async def stop(self) -> None:
        """End the background duties; the plan is stored already."""
        self._duties.stop()
        await asyncio.to_thread(self._desk.close)

    def _plan(self) -> str:
        self._duties.keep_going()
        return self._rollout.plan.to_json()

    async def _do(self, work: Callable[[], None], *, own: bool = False) -> None:
        self._loop = asyncio.get_running_loop()
        await self._desk.do(work, own=own)

    def _push(self, _plan: RoutingPlan) -> None:
        if self._loop is not None:  # before the first call nobody waits
            self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def _tick(self) -> None:
        while True:
            await self._do(self._turn, own=True)
            if self._rollout.overtaken:
                self._end()
            await asyncio.sleep(_TICK_S)

    def _turn(self) -> None:
        self._rollout.tick()
        self._look_at_rollout()

    async def _export(self) -> None:
        """Nothing to do is done for ever, too: a duty that ends is begun anew."""
        await (asyncio.Event().wait() if self._exporter is None else self._exporter.run())

    async def _look(self) -> None:
        """Count ready replicas; when nobody can say, nothing is known, and no share grows."""
        while True:
            try:
                async with asyncio.timeout(_LOOK_S * 5):
                    self._around.ready = await asyncio.to_thread(self._look_at_replicas)
            except Exception:  # noqa: BLE001 -- the boundary to Serve, which may be away, starting or of another version
                self._around.ready = {}
            await asyncio.sleep(_LOOK_S)

    async def _follow_settings(self) -> None:
        """A ``stages.toml`` that was changed holds from now on; one that can't be meant leaves what was in force."""
        while True:
            settings = self._settings
            if await asyncio.to_thread(settings.has_changed):
                await self._do(partial(self._take_over, settings), own=True)
            await asyncio.sleep(_LOOK_S)

    def _take_over(self, settings: StageSettings) -> None:
        if settings is not self._settings:  # another profile was adopted meanwhile
            return
        try:
            policy = settings.read()
        except ConfigError:
            self._say_if_refused()
        else:
            self._rollout.adopt(policy)
            self._around.record("stages_changed", stages_in_words(policy), epoch=self._rollout.plan.epoch)

    def _say_if_refused(self) -> None:
        if self._settings.refusal is not None:
            self._around.record("stages_refused", self._settings.refusal, epoch=self._rollout.plan.epoch)
