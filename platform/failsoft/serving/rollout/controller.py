"""The rollout controller as one durable, named Ray actor, and the way to reach it from other processes.

It restarts for ever, calls to it are retried for ever, and nobody calls it while a request waits.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import ray
from ray import serve
from ray.exceptions import GetTimeoutError, RayActorError, RayError, RayTaskError
from ray.serve.exceptions import RayServeException

from failsoft import __version__
from failsoft.artifacts.manifest import digest_bytes
from failsoft.errors import FailsoftError, ServingError
from failsoft.health.clock import SystemClock
from failsoft.health.metrics import RaySink
from failsoft.serving.config import AppConfig
from failsoft.serving.plan.follower import PlanFollower
from failsoft.serving.plan.plan import Colour, RoutingPlan
from failsoft.serving.plan.trips import Trip
from failsoft.serving.rollout.control import Controller, ControllerConfig
from failsoft.serving.rollout.evidence import OutcomeBatch
from failsoft.serving.rollout.first_plan import first_plan
from failsoft.serving.rollout.shaping import ready_fractions
from failsoft.serving.watching.label_exchange import Place
from failsoft.serving.watching.late_labels import Told

__all__ = [
    "ControllerClient",
    "ControllerConfig",
    "controller_name",
    "controller_of",
    "follow_plans",
    "start_controller",
    "stop_controller",
]

NAMESPACE = "failsoft"
_MAX_CALLS = 4000
"""Long polls wait inside the actor: one for each gateway and model replica."""
_START_S = 60.0
_CALL_S = 10.0
_TRIES, _GONE_S = 20, 0.25
"""How often a controller of another version is ended, and the pause in which Ray forgets its name."""


def _ready_fractions(of: str) -> dict[Colour, float]:
    """From Serve: the app's deployments named for the colours; where its name is not known, any app's."""
    return ready_fractions(
        (colour, {str(state): count for state, count in app.deployments[colour].replica_states.items()})
        for name, app in serve.status().applications.items()
        for colour in Colour
        if colour in app.deployments and (not of or name == of)
    )


def app_name() -> str:
    """Name of the Serve application whose replica this process is; empty where it is none."""
    try:
        return serve.get_replica_context().app_name
    except RayServeException:
        return ""


def controller_name(home: str | Path) -> str:
    """The actor's name: one for each home folder, so that two apps on one cluster never share a plan."""
    return f"failsoft-controller-{digest_bytes(str(home).encode())[-8:]}"


def _handle(config: ControllerConfig) -> Any:
    """The running controller, or a new one that goes on from the stored plan."""
    actor = ray.remote(num_cpus=0)(Controller).options(
        name=controller_name(config.home),
        namespace=NAMESPACE,
        lifetime="detached",
        get_if_exists=True,
        max_restarts=-1,
        max_task_retries=-1,
        max_concurrency=_MAX_CALLS,
        enable_task_events=False,
    )
    return actor.remote(asdict(config), partial(_ready_fractions, config.app), RaySink, _end_process)


def find(config: ControllerConfig) -> Any:
    """The same. Blocks: for a minute where the cluster's head is away.

    Raises:
        ServingError: it ended between Ray's two looks for its name, as in an upgrade, when one takes another's place.
    """
    try:
        return _handle(config)
    except ValueError as error:
        raise ServingError(f"the rollout controller comes and goes just now ({error}); try again") from error


def _end_process() -> None:
    """Ray starts another actor, which reads the plan, where this one is still its own; else nobody misses it."""
    os._exit(1)


def controller_of(app: AppConfig) -> ControllerConfig:
    """The controller that an app's replicas ask."""
    return ControllerConfig(
        home=str(app.home), release=app.release, profile=app.profile, slots=app.slots, app=app_name()
    )


def start_controller(config: ControllerConfig) -> None:
    """Have the controller running, of this version of failsoft and under the config's profile.

    Idempotent; for composition roots, before the app. A controller of another version gives way, as when the app is
    upgraded in place: its plan is stored, and the one that takes its place goes on from there.

    Raises:
        ServingError: it did not start or answer; PlanStoreError when the reason is its storage.
    """
    try:
        _give_way_to_this_version(config)
        ray.get(find(config).adopt.remote(config.profile, config.slots, config.app), timeout=_START_S)
    except GetTimeoutError as error:
        raise ServingError(
            f"the rollout controller did not answer within {_START_S:.0f} s; see: ray list actors"
        ) from error
    except RayError as error:
        raise _ours(error) from error


def _give_way_to_this_version(config: ControllerConfig) -> None:
    """A replica of the version before may bring its own controller back while it is still there, so look again."""
    clock = SystemClock()
    for ended in range(_TRIES):
        try:
            handle = find(config)
            if ray.get(handle.status.remote(), timeout=_START_S).get("version") == __version__:
                return
            ray.kill(handle)  # the one that was asked, whatever has its name by now
        except RayActorError:
            if not ended:
                raise  # nobody's upgrade: it did not start, for want of its storage as often as not
        except ServingError:  # another replica ended it first, and Ray forgets its name just now
            pass
        clock.sleep_s(_GONE_S)
    raise ServingError(
        f"a rollout controller of another version than {__version__} comes back as often as it is ended: does another "
        f"app use the home {config.home}? Each needs one of its own"
    )


def stop_controller(home: str | Path) -> None:
    """End the controller of a home for good; its plan stays stored. Does nothing when there is none."""
    try:
        handle = ray.get_actor(controller_name(home), namespace=NAMESPACE)
    except ValueError:
        return
    ray.kill(handle)


class ControllerClient:
    """Asks the controller from another process; also a source of plans. Finds it again when it was replaced.

    Each method raises what the controller raised, or ServingError when it can't be reached.

    Args:
        config: which controller.
        name: of the replica that asks, shown to operators with the plan that it has; empty: not shown.
    """

    def __init__(self, config: ControllerConfig, *, name: str = "") -> None:
        self._config = config
        self._name = name
        self._known: Any = None
        self._looking: asyncio.Future[Any] | None = None

    async def wait_plan(self, known_epoch: int, timeout_s: float) -> RoutingPlan:
        """See :meth:`Controller.wait_plan`."""
        return await self._ask("wait_plan", known_epoch, timeout_s, self._name, within_s=timeout_s + _CALL_S)

    async def report(self, batches: Sequence[OutcomeBatch]) -> RoutingPlan:
        """See :meth:`Controller.report`."""
        return await self._ask("report", [batch.as_json() for batch in batches])

    async def hand_on(self, labels: Sequence[Told]) -> None:
        """See :meth:`Controller.hand_on`."""
        await self._call("hand_on", [tuple(told) for told in labels])

    async def wait_labels(self, place: Place, timeout_s: float) -> tuple[Place, list[Told]]:
        """See :meth:`Controller.wait_labels`."""
        place, labels = await self._call("wait_labels", place, timeout_s, within_s=timeout_s + _CALL_S)
        return place, [Told(*told) for told in labels]

    async def trip(self, trip: Trip) -> RoutingPlan:
        """See :meth:`Controller.trip`."""
        return await self._ask("trip", trip.as_json())

    async def holds(self, held: Mapping[str, Any]) -> None:
        """See :meth:`Controller.holds`; the name is this client's."""
        await self._call("holds", self._name, dict(held))

    async def force(self, for_s: float | None, why: str, by: str) -> RoutingPlan:
        """See :meth:`Rollout.force`."""
        return await self._ask("force", for_s, why, by)

    async def restore(self, why: str, by: str) -> RoutingPlan:
        """See :meth:`Rollout.restore`."""
        return await self._ask("restore", why, by)

    async def propose(self, release: str, by: str, *, again: bool = False) -> RoutingPlan:
        """See :meth:`Controller.propose`."""
        return await self._ask("propose", release, by, again, within_s=_START_S)

    async def abort(self, release: str, why: str, by: str) -> RoutingPlan:
        """See :meth:`Rollout.abort`."""
        return await self._ask("abort", release, why, by)

    async def hold(self, release: str, why: str, by: str) -> RoutingPlan:
        """See :meth:`Rollout.hold`."""
        return await self._ask("hold", release, why, by)

    async def resume(self, release: str, why: str, by: str) -> RoutingPlan:
        """See :meth:`Rollout.resume`."""
        return await self._ask("resume", release, why, by)

    async def advance(self, release: str, from_stage: str, why: str, by: str) -> RoutingPlan:
        """See :meth:`Rollout.advance`."""
        return await self._ask("advance", release, from_stage, why, by)

    async def status(self) -> dict[str, Any]:
        """See :meth:`Rollout.status`."""
        return dict(await self._call("status"))

    async def _ask(self, method: str, *arguments: Any, within_s: float = _CALL_S) -> RoutingPlan:
        return RoutingPlan.from_json(await self._call(method, *arguments, within_s=within_s))

    async def _call(self, method: str, *arguments: Any, within_s: float = _CALL_S) -> Any:
        try:
            async with asyncio.timeout(within_s):
                if self._known is None:
                    self._known = await self._found()
                return await getattr(self._known, method).remote(*arguments)
        except RayTaskError as error:
            raise _ours(error) from error
        except RayError as error:  # it is gone for good: the next call finds or makes another
            self._known = None
            raise _ours(error) from error
        except TimeoutError as error:
            raise ServingError(f"the rollout controller did not answer {method} within {within_s:.0f} s") from error

    async def _found(self) -> Any:
        """One look at a time: it takes a thread, and where the head is away it keeps that for a minute."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(asyncio.to_thread(find, self._config))
            self._looking.add_done_callback(_said)
        return await asyncio.shield(self._looking)


def _said(looked: asyncio.Future[Any]) -> None:
    """Whoever still waits hears what it raised; where nobody does that is no news."""
    if not looked.cancelled():
        looked.exception()


def _ours(error: RayError) -> FailsoftError:
    """The error of ours inside one of Ray's, or a ServingError that says what Ray said."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, FailsoftError):
        return cause
    lines = str(error).strip().splitlines() or [repr(error)]
    return ServingError(f"the rollout controller can't be reached: {error.__class__.__name__}: {lines[-1][:300]}")


def follow_plans(config: ControllerConfig, *, name: str) -> PlanFollower:
    """A follower that is not yet started. Until the controller speaks it holds the stored plan, or trusts no model."""
    source = ControllerClient(config, name=name)
    return PlanFollower(source, name=name, clock=SystemClock(), first=first_plan(config))
