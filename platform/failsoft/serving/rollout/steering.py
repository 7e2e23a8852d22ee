"""What an operator may order of the rollout through any gateway replica, and see of it. Nothing is decided here.

An order is durable when its method returns, and this replica follows the plan that came of it at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from failsoft.serving.plan.plan import RoutingPlan


class Controls(Protocol):
    """The controller, however far away. Methods raise what it refused, or ServingError when it is out of reach."""

    async def abort(self, release: str, why: str, by: str) -> RoutingPlan:
        """See :meth:`failsoft.serving.rollout.rollout.Rollout.abort`."""
        ...

    async def hold(self, release: str, why: str, by: str) -> RoutingPlan:
        """See :meth:`failsoft.serving.rollout.rollout.Rollout.hold`."""
        ...

    async def resume(self, release: str, why: str, by: str) -> RoutingPlan:
        """See :meth:`failsoft.serving.rollout.rollout.Rollout.resume`."""
        ...

    async def advance(self, release: str, from_stage: str, why: str, by: str) -> RoutingPlan:
        """See :meth:`failsoft.serving.rollout.rollout.Rollout.advance`."""
        ...

    async def status(self) -> dict[str, Any]:
        """See :meth:`failsoft.serving.rollout.rollout.Rollout.status`."""
        ...


class Steering:
    """Passes orders on. Each returns the plan after it as plain values.

    Args:
        controls: carries them out.
        follow: takes the plan that an order made, so that the replica that was asked is not behind its own answer.
    """

    def __init__(self, controls: Controls, follow: Callable[[RoutingPlan], None]) -> None:
        self._controls = controls
        self._follow = follow

    async def abort(self, release: str, *, why: str, by: str) -> dict[str, Any]:
        """Give a release up, on trial or in service: the older one serves at once."""
        return await self._order(self._controls.abort(release, why, by))

    async def hold(self, release: str, *, why: str, by: str) -> dict[str, Any]:
        """Keep a release in the stage where it is."""
        return await self._order(self._controls.hold(release, why, by))

    async def resume(self, release: str, *, why: str, by: str) -> dict[str, Any]:
        """Let a release that is held go on."""
        return await self._order(self._controls.resume(release, why, by))

    async def advance(self, release: str, *, from_stage: str, why: str, by: str) -> dict[str, Any]:
        """Let a release that has passed its stage, and is held or goes by hand, into the next one."""
        return await self._order(self._controls.advance(release, from_stage, why, by))

    async def rollout(self) -> dict[str, Any]:
        """Where the rollout stands and what it waits for, as the controller knows it."""
        return await self._controls.status()

    async def _order(self, order: Awaitable[RoutingPlan]) -> dict[str, Any]:
        plan = await order
        self._follow(plan)
        return plan.as_json()
