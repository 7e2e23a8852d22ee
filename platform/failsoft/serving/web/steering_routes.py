"""The operator's routes for a release on its way, and the one that shows where the rollout stands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Protocol

from fastapi import Body, Depends, FastAPI, Path, Response
from pydantic import BaseModel, ConfigDict, Field

from failsoft.serving.web import examples, status_examples
from failsoft.serving.web.api_description import refusals
from failsoft.serving.web.as_sent import as_sent
from failsoft.serving.web.reading import Reading
from failsoft.serving.web.rollout_bodies import RolloutBody
from failsoft.serving.web.status_bodies import PlanBody

ROLLOUT = "/v1/rollout"
_RELEASE = "/v1/releases/{name}"
_REFUSED = (400, 401, 404, 409, 413, 422, 503)


class TrialOrder(BaseModel):
    """Why an operator does something to a release, and who; kept in the ledger."""

    model_config = ConfigDict(extra="forbid", strict=True)
    why: str = Field(min_length=1, max_length=500, description="Kept in the ledger and shown with the plan.")
    by: str = Field(
        default="operator", min_length=1, max_length=100, description="Who; the token says only that she may."
    )


class Step(TrialOrder):
    """An operator lets a release into the next stage."""

    from_stage: str = Field(
        max_length=20, description="The stage that it has passed, as it was seen: an order sent twice is one step."
    )


class Steers(Protocol):
    """What stands behind these routes; see :class:`failsoft.serving.rollout.steering.Steering`."""

    async def abort(self, release: str, *, why: str, by: str) -> dict[str, Any]:
        """Give a release up."""
        ...

    async def hold(self, release: str, *, why: str, by: str) -> dict[str, Any]:
        """Keep it in its stage."""
        ...

    async def resume(self, release: str, *, why: str, by: str) -> dict[str, Any]:
        """Let it go on."""
        ...

    async def advance(self, release: str, *, from_stage: str, why: str, by: str) -> dict[str, Any]:
        """Let it into the next stage."""
        ...

    async def rollout(self) -> dict[str, Any]:
        """Where the rollout stands."""
        ...


_Name = Annotated[str, Path(description="The plan's subject.", examples=[examples.RELEASE_NAME], max_length=200)]
_ORDERS: dict[str, Any] = {"frozen": {"value": {"why": "no changes before the holidays", "by": "anna"}}}
_STEPS: dict[str, Any] = {"passed": {"value": {"why": "looked at the answers", "by": "anna", "from_stage": "shadow"}}}
_SUMMARIES = {
    "abort": "Give a release up, on trial or in service: the older one serves at once",
    "hold": "Keep a release in the stage where it is; it still falls when it is ill",
    "resume": "Let a release that is held go on by itself",
    "advance": "Let a release that has passed its stage into the next one by hand",
}

ANSWERS: dict[str, dict[str, Any]] = {ROLLOUT: {"serving": {"value": status_examples.ROLLOUT}}} | {
    f"{_RELEASE}/{verb}": {"plan": {"value": examples.PLAN}} for verb in _SUMMARIES
}
"""For each path examples of what it says when all is well."""


def add_steering(app: FastAPI, steers: Steers, operator: Callable[..., None], reading: Reading) -> None:
    """Add the routes. ``operator`` is what lets only an operator through; ``reading`` says who may see the rollout."""

    async def abort(name: _Name, order: Annotated[TrialOrder, Body(openapi_examples=_ORDERS)]) -> Response:
        return as_sent(await steers.abort(name, why=order.why, by=order.by))

    async def hold(name: _Name, order: Annotated[TrialOrder, Body(openapi_examples=_ORDERS)]) -> Response:
        return as_sent(await steers.hold(name, why=order.why, by=order.by))

    async def resume(name: _Name, order: Annotated[TrialOrder, Body(openapi_examples=_ORDERS)]) -> Response:
        return as_sent(await steers.resume(name, why=order.why, by=order.by))

    async def advance(name: _Name, order: Annotated[Step, Body(openapi_examples=_STEPS)]) -> Response:
        return as_sent(await steers.advance(name, from_stage=order.from_stage, why=order.why, by=order.by))

    for order in (abort, hold, resume, advance):
        path = f"{_RELEASE}/{order.__name__}"
        app.add_api_route(
            path,
            order,
            methods=["POST"],
            summary=_SUMMARIES[order.__name__],
            dependencies=[Depends(operator)],
            response_model=PlanBody,
            response_description="The plan after this, stored and in force",
            responses=refusals(path.format(name=examples.RELEASE_NAME), *_REFUSED),
        )
    _add_rollout(app, steers, reading)


def _add_rollout(app: FastAPI, steers: Steers, reading: Reading) -> None:
    async def rollout() -> Response:
        return as_sent(await steers.rollout())

    app.add_api_route(
        ROLLOUT,
        rollout,
        methods=["GET"],
        summary="Where the rollout stands and what it waits for, as the controller knows it",
        response_model=RolloutBody,
        response_description="What it knows; there may be more fields than these",
        dependencies=reading.dependencies,
        responses=refusals(ROLLOUT, *reading.refusals, 503),
    )
