"""The gateway's HTTP routes: what is said over the wire, and nothing about how it comes to be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Protocol

from fastapi import Depends, FastAPI, Header, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from failsoft.errors import (
    ArtifactError,
    ArtifactMissingError,
    BadRequestError,
    ConfigError,
    FailsoftError,
    NotAuthorizedError,
)
from failsoft.serving.bodies import BodyLimit
from failsoft.serving.messages import PredictAnswer, PredictAnswers, PredictRequest, problem

Guard = Callable[[str | None], None]
"""Raises NotAuthorizedError unless an Authorization header carries the operator's token."""


class Order(BaseModel):
    """What an operator sends. Strict: a misspelt time limit must not become an order without end."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Force(Order):
    """An operator's order to answer from the fallback."""

    for_s: float | None = Field(default=None, gt=0.0, le=30 * 86_400.0, description="Seconds; null: until restore.")
    why: str = Field(min_length=1, max_length=500)


class Reason(Order):
    """Why an operator does something; kept in the ledger."""

    why: str = Field(min_length=1, max_length=500)


class Front(Protocol):
    """What stands behind the routes."""

    async def predict(self, request: PredictRequest) -> PredictAnswer | PredictAnswers:
        """Answer one text, or several item by item."""
        ...

    def status(self) -> dict[str, Any]:
        """What this replica knows."""
        ...

    async def degrade(self, *, for_s: float | None, why: str) -> dict[str, Any]:
        """Force the fallback everywhere."""
        ...

    async def restore(self, *, why: str) -> dict[str, Any]:
        """End the force."""
        ...

    async def propose(self, release: str) -> dict[str, Any]:
        """Let a release begin its way through the stages."""
        ...


def build_routes(front: Front, guard: Guard, *, max_body_bytes: int = 1_048_576) -> FastAPI:
    """The HTTP app of one gateway replica."""
    app = FastAPI(title="failsoft gateway", version="1", description=__doc__)
    app.add_middleware(BodyLimit, max_bytes=max_body_bytes)
    _add_answers(app, front)
    _add_operator(app, front, guard)
    for error_class in _STATUS_OF:
        app.add_exception_handler(error_class, _as_problem)
    app.add_exception_handler(RequestValidationError, _as_misfit)
    app.add_exception_handler(HTTPException, _as_http_problem)
    return app


def _add_answers(app: FastAPI, front: Front) -> None:
    async def predict(body: PredictRequest) -> PredictAnswer | PredictAnswers:
        return await front.predict(body)

    async def status() -> dict[str, Any]:
        return front.status()

    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    app.add_api_route("/v1/predict", predict, methods=["POST"], summary="Answer a text, or several")
    app.add_api_route("/v1/status", status, methods=["GET"], summary="What this gateway replica knows")
    app.add_api_route("/healthz", healthz, methods=["GET"], summary="Whether this gateway replica answers")


def _add_operator(app: FastAPI, front: Front, guard: Guard) -> None:
    def operator(authorization: Annotated[str | None, Header()] = None) -> None:
        guard(authorization)

    async def degrade(order: Force) -> dict[str, Any]:
        return await front.degrade(for_s=order.for_s, why=order.why)

    async def restore(order: Reason) -> dict[str, Any]:
        return await front.restore(why=order.why)

    async def propose(name: str) -> dict[str, Any]:
        return await front.propose(name)

    only_operator = [Depends(operator)]
    app.add_api_route("/v1/degrade", degrade, methods=["POST"], dependencies=only_operator)
    app.add_api_route("/v1/restore", restore, methods=["POST"], dependencies=only_operator)
    app.add_api_route("/v1/releases/{name}/propose", propose, methods=["POST"], dependencies=only_operator)


_STATUS_OF: dict[type[FailsoftError], int] = {
    NotAuthorizedError: 401,
    BadRequestError: 400,
    ConfigError: 400,
    ArtifactMissingError: 404,
    ArtifactError: 409,
    FailsoftError: 503,
}


async def _as_problem(_request: Request, error: Exception) -> JSONResponse:
    status = next(status for kind, status in _STATUS_OF.items() if isinstance(error, kind))
    return _answer(status, str(error), {"WWW-Authenticate": "Bearer"} if status == 401 else None)


async def _as_misfit(_request: Request, error: Exception) -> JSONResponse:
    """What does not fit, and where. The input is not repeated: half a character in it would break the answer too."""
    errors = error.errors() if isinstance(error, RequestValidationError) else []
    found = [f"{'.'.join(str(part) for part in entry['loc'])}: {entry['msg']}" for entry in errors]
    return _answer(422, "; ".join(found))


async def _as_http_problem(_request: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, HTTPException):
        raise error
    return _answer(error.status_code, str(error.detail), error.headers)


def _answer(status: int, detail: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse(problem(status, detail), status, headers, media_type="application/problem+json")
