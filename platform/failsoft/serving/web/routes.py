"""The gateway's HTTP routes: what is said over the wire, and nothing about how it comes to be."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, Protocol

from fastapi import Body, Depends, FastAPI, Path, Query, Request, Security
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from failsoft.errors import (
    ArtifactError,
    ArtifactMissingError,
    BadRequestError,
    ConfigError,
    FailsoftError,
    NotAuthorizedError,
    SaturatedError,
)
from failsoft.health.clock import SystemClock
from failsoft.serving.web import examples, status_examples
from failsoft.serving.web.answer_headers import headers_of
from failsoft.serving.web.api_description import describe, refusals
from failsoft.serving.web.as_json import read_as_json
from failsoft.serving.web.as_sent import as_sent
from failsoft.serving.web.auth import Guard, Guards
from failsoft.serving.web.bodies import BodyLimit
from failsoft.serving.web.guess_limit import GuessLimit
from failsoft.serving.web.headers import NAMED, CallerId, RequestId, SessionId, WaitsMs, as_id, of_one_caller
from failsoft.serving.web.messages import Ask
from failsoft.serving.web.page_headers import PageHeaders
from failsoft.serving.web.problems import PROTOCOL, refusal
from failsoft.serving.web.quick_door import QuickDoor
from failsoft.serving.web.reading import Reading, reading_of
from failsoft.serving.web.status_bodies import HealthzBody, PlanBody, StatusBody
from failsoft.serving.web.steering_routes import ANSWERS, Steers, add_steering
from failsoft.serving.web.turnstile import ITEMS_EACH, RETRY_AFTER_S, Room, Turnstile
from failsoft.serving.web.way_in import Layer, NettedApp
from failsoft.serving.web.wire import Wire

_log = logging.getLogger(__name__)
_PREDICT, _STATUS, _HEALTH = "/v1/predict", "/v1/status", "/healthz"
_DEGRADE, _RESTORE, _PROPOSE = "/v1/degrade", "/v1/restore", "/v1/releases/{name}/propose"
_NAMED = 80
"""Characters of a caller's own field name that are repeated to it."""


class Order(BaseModel):
    """What an operator sends. Strict: a misspelt time limit must not become an order without end."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Reason(Order):
    """Why an operator does something, and who; kept in the ledger."""

    why: str = Field(min_length=1, max_length=500, description="Kept in the ledger and shown with the plan.")
    by: str = Field(
        default="operator", min_length=1, max_length=100, description="Who; the token says only that she may."
    )


class Force(Reason):
    """An operator's order to hold the model back."""

    for_s: float | None = Field(default=None, gt=0.0, le=30 * 86_400.0, description="Seconds; null: until restore.")


class Front(Protocol):
    """What stands behind the routes."""

    async def predict(self, request: Any) -> BaseModel:
        """Answer one item, or several item by item; the request is one of the app's own inputs."""
        ...

    def status(self) -> dict[str, Any]:
        """What this replica knows."""
        ...

    async def degrade(self, *, for_s: float | None, why: str, by: str) -> dict[str, Any]:
        """Force the fallback everywhere."""
        ...

    async def restore(self, *, why: str, by: str) -> dict[str, Any]:
        """End the force."""
        ...

    async def propose(self, release: str, *, again: bool = False) -> dict[str, Any]:
        """Let a release begin its way through the stages."""
        ...


_ANSWERS: dict[str, dict[str, Any]] = {
    _STATUS: {"serving": {"value": status_examples.STATUS}},
    _HEALTH: {"ok": {"value": {"status": "ok"}}},
    _DEGRADE: {"plan": {"value": examples.PLAN}},
    _RESTORE: {"plan": {"value": examples.PLAN}},
    _PROPOSE: {"plan": {"value": examples.PLAN}},
}


def build_routes(
    front: Front,
    guard: Guard | Guards,
    *,
    wire: Wire,
    steers: Steers | None = None,
    max_body_bytes: int = 1_048_576,
    max_requests: int = 256,
) -> NettedApp:
    """The HTTP app of one gateway replica; ``wire`` is what its callers send and get.

    ``guard``: of the orders; everybody may read then what the gateway says of itself.
    """
    guards = guard if isinstance(guard, Guards) else Guards(operator=guard)
    reading = reading_of(guards.reader)
    room = Room(front.predict, max_items=ITEMS_EACH * max_requests)
    quick_door = partial(
        QuickDoor,
        path=_PREDICT,
        form=wire.request,
        answer=room.predict,
        refuse=_as_problem,
        long_way=NAMED,
    )
    turnstile = partial(Turnstile, max_inside=max_requests, counts=_is_answered)
    body_limit = partial(BodyLimit, max_bytes=max_body_bytes)  # outside: a body that trickles in takes nobody's place
    guesses = partial(GuessLimit, clock=SystemClock())
    page_headers = partial(PageHeaders, spares=_is_answered)
    layers: list[Layer] = [page_headers, guesses, quick_door, turnstile, body_limit]
    app = NettedApp(layers=layers, title="failsoft gateway", version="1", description=examples.ABOUT)
    app.state.room = room
    _add_answers(app, room, wire)
    _add_words(app, front, reading)
    operator = _add_operator(app, front, guards.operator)
    if steers is not None:
        add_steering(app, steers, operator, reading)
    describe(app, _ANSWERS | (ANSWERS if steers is not None else {}) | {_PREDICT: wire.answer_examples})
    for error_class in _STATUS_OF:
        app.add_exception_handler(error_class, _as_problem)
    app.add_exception_handler(RequestValidationError, _as_misfit)
    app.add_exception_handler(HTTPException, _as_http_problem)
    app.add_exception_handler(Exception, _as_our_own_fault)
    return app


def _is_answered(path: str) -> bool:
    """Whether requests of this path ask for answers, and not for orders or words on the gateway itself."""
    return path == _PREDICT or (path.startswith(PROTOCOL) and path.endswith("/infer"))


def _add_answers(app: FastAPI, room: Room, wire: Wire) -> None:
    async def predict(
        body: Ask, ms: WaitsMs = None, caller: CallerId = None, key: SessionId = None, request_id: RequestId = None
    ) -> Response:
        asked = body.within(ms).asked_by(caller).keyed_by(key).identified(as_id(request_id))
        answer = await room.predict(asked)
        said = answer.model_dump_json()  # FastAPI would check it all again
        return Response(said, headers=headers_of(answer), media_type="application/json")

    body = Body(openapi_examples=dict(wire.request_examples))
    predict.__annotations__["body"] = Annotated[wire.request, read_as_json(wire.request), body]
    app.add_api_route(
        _PREDICT,
        predict,
        methods=["POST"],
        dependencies=[Depends(of_one_caller)],
        summary="Answer an item, or several",
        response_model=wire.answer | wire.answers,
        response_description="An answer for each item, and who gave it",
        responses=refusals(_PREDICT, 400, 413, 422, 429),
    )


def _add_words(app: FastAPI, front: Front, reading: Reading) -> None:
    """What the gateway says of itself. Whoever asks whether it lives, a balancer say, has no token."""

    async def status() -> Response:
        return as_sent(front.status())

    async def healthz() -> Response:
        return as_sent({"status": "ok"})

    app.add_api_route(
        _STATUS,
        status,
        methods=["GET"],
        summary="What this gateway replica knows",
        response_model=StatusBody,
        response_description="What it knows; there may be more fields than these",
        dependencies=reading.dependencies,
        responses=refusals(_STATUS, *reading.refusals),
    )
    app.add_api_route(
        _HEALTH,
        healthz,
        methods=["GET"],
        summary="Whether this gateway replica answers",
        response_model=HealthzBody,
        response_description="It answers",
        responses=refusals(_HEALTH),
    )


_Token = Annotated[
    HTTPAuthorizationCredentials | None,
    Security(HTTPBearer(auto_error=False, scheme_name="operator", description="The operator token of the home.")),
]


_Again = Annotated[bool, Query(description="Also one that was rejected or rolled back.", examples=[True])]


def _add_operator(app: FastAPI, front: Front, guard: Guard) -> Callable[..., None]:
    """Also gives back the dependency that lets only an operator through."""

    def operator(token: _Token) -> None:
        guard(None if token is None else f"{token.scheme} {token.credentials}")

    async def degrade(order: Annotated[Force, Body(openapi_examples=examples.FORCES)]) -> Response:
        return as_sent(await front.degrade(for_s=order.for_s, why=order.why, by=order.by))

    async def restore(order: Annotated[Reason, Body(openapi_examples=examples.REASONS)]) -> Response:
        return as_sent(await front.restore(why=order.why, by=order.by))

    async def propose(
        name: Annotated[str, Path(description="Of a published release.", examples=[examples.RELEASE_NAME])],
        again: _Again = False,  # noqa: FBT002 -- the name is in the URL
    ) -> Response:
        return as_sent(await front.propose(name, again=again))

    refused = (400, 401, 404, 409, 413, 422, 503)
    for path, order, summary in (
        (_DEGRADE, degrade, "Answer from the fallback everywhere, for a time or until restored"),
        (_RESTORE, restore, "End that order; the model comes back through the stages"),
        (_PROPOSE, propose, "Let a release begin its way through the stages"),
    ):
        app.add_api_route(
            path,
            order,
            methods=["POST"],
            summary=summary,
            dependencies=[Depends(operator)],
            response_model=PlanBody,
            response_description="The plan that this made, stored and in force",
            responses=refusals(path.format(name=examples.RELEASE_NAME), *refused),
        )
    return operator


_STATUS_OF: dict[type[FailsoftError], int] = {
    NotAuthorizedError: 401,
    BadRequestError: 400,
    ConfigError: 400,
    ArtifactMissingError: 404,
    ArtifactError: 409,
    SaturatedError: 429,
    FailsoftError: 503,
}


_HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 429: {"Retry-After": str(RETRY_AFTER_S)}}


async def _as_problem(request: Request, error: Exception) -> JSONResponse:
    status = next(status for kind, status in _STATUS_OF.items() if isinstance(error, kind))
    return _answer(request, status, str(error), _HEADERS.get(status))


async def _as_misfit(request: Request, error: Exception) -> JSONResponse:
    """What does not fit, and where. The input is not repeated: half a character in it would break the answer too."""
    errors = error.errors() if isinstance(error, RequestValidationError) else []
    found = [f"{'.'.join(str(part)[:_NAMED] for part in entry['loc'])}: {entry['msg']}" for entry in errors]
    return _answer(request, 422, "; ".join(found))


async def _as_http_problem(request: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, HTTPException):
        raise error
    return _answer(request, error.status_code, str(error.detail), error.headers)


async def _as_our_own_fault(request: Request, _error: Exception) -> JSONResponse:
    """A bug; it is raised again behind this, into the log. What it says is not the caller's business."""
    return _answer(request, 500, examples.DETAILS[500])


def _answer(request: Request, status: int, detail: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return refusal(request.scope, status, detail, headers)
