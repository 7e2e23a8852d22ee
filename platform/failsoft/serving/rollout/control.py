"""The controller that owns the routing plan: calls come in, a clock ticks, plans go out. Free of Ray.

Calls may arrive twice, since the actor around it restarts and is asked again: each is idempotent, or numbered.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from failsoft import __version__
from failsoft.artifacts.home import Home
from failsoft.errors import ConfigError, PlanStoreError
from failsoft.health.clock import Clock, SystemClock
from failsoft.health.exporter import Exporter
from failsoft.health.ledger import Side
from failsoft.health.metric_book import MetricBook, Sink
from failsoft.serving.giving_way import giving_way
from failsoft.serving.pacing import LoadingPolicy, Pace
from failsoft.serving.plan.plan import Colour, RoutingPlan, Stage
from failsoft.serving.plan.planstore import PlanStore
from failsoft.serving.plan.roll_call import RollCall
from failsoft.serving.plan.trips import Trip
from failsoft.serving.rollout.course import Course
from failsoft.serving.rollout.evidence import OutcomeBatch
from failsoft.serving.rollout.gate_record import remembered
from failsoft.serving.rollout.rollout import Rollout
from failsoft.serving.rollout.rollout_metrics import RolloutMetrics
from failsoft.serving.rollout.shaping import no_higher
from failsoft.serving.rollout.stage_settings import StageSettings, stages_in_words
from failsoft.serving.rollout.stages import stage_named, stage_policy
from failsoft.serving.rollout.surroundings import HomeSurroundings
from failsoft.serving.watching.label_exchange import LabelPost, Place

_TICK_S = 0.1
_LOOK_S = 1.0
"""How often replicas are counted."""
_VERIFYING = LoadingPolicy(pauses_at_most_s=3.0)
"""Beside what live answers need; an operator waits for it, and a command line no longer than 10 s."""

Look = Callable[[], Mapping[Colour, float]]
"""Counts replicas: for each colour that is known the share of its replicas that are ready."""


@dataclass(frozen=True, kw_only=True)
class ControllerConfig:
    """What the controller is made from; plain values, since they outlive the process that gave them."""

    home: str
    """Root folder of plan, ledger and releases; absolute, on storage that every node reaches."""
    release: str
    """Serves in the first plan; after that the stored plan rules."""
    profile: str = "production"
    """Name of the stage policy."""
    slots: int = 2
    """Model deployments: 2, or 1 for a model too large for two (see ``one_slot.py``)."""
    app: str = ""
    """Name of the Serve application, by which its metrics are told apart; empty: not known."""

    def __post_init__(self) -> None:
        """Refuse a home that means another folder elsewhere, and unknown profiles."""
        if not Path(self.home).is_absolute():
            raise ConfigError(f"home is {self.home}; give an absolute path, the controller runs in another folder")
        if self.slots not in (1, 2):
            raise ConfigError(f"slots is {self.slots}; use 2, or 1 for a model too large to be loaded twice")
        stage_policy(self.profile)


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
        self._releases, self._clock = home.releases(clock), clock
        self._look_at_replicas, self._end = look, end
        self._thread = giving_way("verifying releases")
        self._around = HomeSurroundings(home, clock, self._push)
        self._news = asyncio.Event()
        self._roll_call = RollCall(clock)
        self._labels = LabelPost(clock)
        self._duties: dict[str, asyncio.Task[None]] = {}
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
        self._book = MetricBook()
        self._book.whose["app"] = config.app
        self._exporter = None if sink is None else self._make_exporter(sink, clock)

    def _make_exporter(self, sink: Callable[[], Sink], clock: Clock) -> Exporter:
        metrics = RolloutMetrics(self._book, self._status, remembered(self._releases.root), clock)
        return Exporter(self._book, sink, metrics.look, side=Side.SERVING, clock=clock)

    async def adopt(self, profile: str, slots: int | None = None, app: str = "") -> str:
        """Judge by another profile, and for another number of slots; those in force change nothing.

        ``app``: the Serve application that it is from now on; empty: as before.
        """
        self._book.whose["app"] = app or self._book.whose["app"]
        settings = StageSettings(self._settings.root, profile)
        self._rollout.adopt(settings.read(), slots=slots)
        self._settings = settings
        return self._plan()

    async def wait_plan(self, known_epoch: int, timeout_s: float, who: str = "") -> str:
        """The plan: at once if its epoch is not ``known_epoch``, else when it changes or time is up."""
        self._keep_going()
        self._roll_call.heard(who, known_epoch)
        if self._rollout.plan.epoch == known_epoch:
            news = self._news
            try:
                async with asyncio.timeout(timeout_s):
                    await news.wait()
            except TimeoutError:
                pass
        return self._plan()

    async def report(self, batches: list[dict[str, Any]]) -> str:
        """Count outcomes, and judge at once when one of them is bad; the plan after that."""
        bad = False
        for batch in map(OutcomeBatch.of, batches):
            self._rollout.take(batch)
            bad = bad or batch.has_bad
        if bad:
            self._rollout.tick()
        return self._plan()

    async def hand_on(self, labels: list[tuple[int, Any]]) -> None:
        """Labels of answers that another gateway gave; see :meth:`LabelPost.put`."""
        self._labels.put(labels)

    async def wait_labels(self, place: Place, timeout_s: float) -> tuple[Place, list[tuple[int, Any]]]:
        """Labels that came after a place; see :meth:`LabelPost.after`."""
        return await self._labels.after(place, timeout_s)

    async def trip(self, trip: dict[str, Any]) -> str:
        """A gateway found a model ill; see :meth:`Rollout.trip`."""
        with suppress(PlanStoreError):  # recorded; that gateway holds the model back by itself and tells again
            self._rollout.trip(Trip.of(trip))
        return self._plan()

    async def holds(self, name: str, held: dict[str, Any]) -> None:
        """A model replica says what it has loaded, and how long that took; for people."""
        self._roll_call.holds(name, held)

    async def force(self, for_s: float | None, why: str, by: str) -> str:
        """An operator's order; see :meth:`Rollout.force`."""
        self._rollout.force(for_s, why=why, by=by)
        return self._plan()

    async def restore(self, why: str, by: str) -> str:
        """The end of an order or of a rest; see :meth:`Rollout.restore`."""
        self._rollout.restore(why=why, by=by)
        return self._plan()

    async def propose(self, release: str, by: str, again: bool = False) -> str:  # noqa: FBT001, FBT002 -- a remote call
        """Let a release begin its way, once every byte of it is verified; see :meth:`Rollout.propose`."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._verify, release)
        self._rollout.propose(release, by=by, again=again)
        return self._plan()

    def _verify(self, release: str) -> None:
        """Blocks. Where only the fallback answers, nobody is to be spared."""
        pace = Pace(
            _VERIFYING,
            self._clock,
            spare=lambda: self._rollout.plan.stage is not Stage.DEGRADED or self._rollout.plan.stand_in is not None,
            on_hurry=lambda why: self._around.record("loading_hurried", why, release=release),
        )
        self._releases.open(release, beat=pace.beat)

    async def abort(self, release: str, why: str, by: str) -> str:
        """Give a release up; see :meth:`Rollout.abort`."""
        self._rollout.abort(release, why=why, by=by)
        return self._plan()

    async def hold(self, release: str, why: str, by: str) -> str:
        """Keep a release in its stage; see :meth:`Rollout.hold`."""
        self._rollout.hold(release, why=why, by=by)
        return self._plan()

    async def resume(self, release: str, why: str, by: str) -> str:
        """Let a release that is held go on; see :meth:`Rollout.resume`."""
        self._rollout.resume(release, why=why, by=by)
        return self._plan()

    async def advance(self, release: str, from_stage: str, why: str, by: str) -> str:
        """Let a release into the next stage by hand; see :meth:`Rollout.advance`."""
        self._rollout.advance(release, from_stage=stage_named(from_stage), why=why, by=by)
        return self._plan()

    async def status(self) -> dict[str, Any]:
        """Everything known, for people."""
        return self._status()

    def _status(self) -> dict[str, Any]:
        process: dict[str, Any] = {"pid": os.getpid(), "version": __version__}
        process["events_not_recorded"] = self._around.unrecorded
        process |= {"profile": self._settings.profile, "settings_error": self._settings.refusal}
        return self._rollout.status() | process | self._roll_call.status()

    async def stop(self) -> None:
        """End the background duties; the plan is stored already."""
        for duty in self._duties.values():
            duty.cancel()
        self._duties = {}

    def _plan(self) -> str:
        self._keep_going()
        return self._rollout.plan.to_json()

    def _push(self, _plan: RoutingPlan) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    def _keep_going(self) -> None:
        """Have the duties running. The first call starts them; one that ended by a bug is recorded and begun anew."""
        for name, work in (("tick", self._tick), ("look", self._look), ("metrics", self._export)):
            duty = self._duties.get(name)
            if duty is not None and duty.done() and not duty.cancelled():
                self._around.record("controller_duty_failed", f"{name} ended: {duty.exception()!r}")
            if duty is None or duty.done():
                self._duties[name] = asyncio.get_running_loop().create_task(work(), name=name)

    async def _tick(self) -> None:
        while True:
            self._rollout.tick()
            if self._rollout.overtaken:
                self._end()
            await asyncio.sleep(_TICK_S)

    async def _export(self) -> None:
        """Nothing to do is done for ever, too: a duty that ends is begun anew."""
        await (asyncio.Event().wait() if self._exporter is None else self._exporter.run())

    async def _look(self) -> None:
        """Count ready replicas; when nobody can say, nothing is known, and no share grows. Look at the settings too."""
        while True:
            await self._look_at_settings()
            try:
                async with asyncio.timeout(_LOOK_S * 5):
                    self._around.ready = await asyncio.to_thread(self._look_at_replicas)
            except Exception:  # noqa: BLE001 -- the boundary to Serve, which may be away, starting or of another version
                self._around.ready = {}
            await asyncio.sleep(_LOOK_S)

    async def _look_at_settings(self) -> None:
        """A ``stages.toml`` that was changed holds from now on; one that can't be meant leaves what was in force."""
        settings = self._settings
        if not await asyncio.to_thread(settings.has_changed) or settings is not self._settings:
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
