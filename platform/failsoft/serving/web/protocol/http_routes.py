"""The protocol's routes over HTTP, below ``/v2``. Their description is the protocol's own, not this app's OpenAPI."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse, Response

from failsoft.errors import BadRequestError
from failsoft.serving.web.headers import CallerId, RequestId, SessionId, WaitsMs, of_one_caller
from failsoft.serving.web.protocol.http_bodies import JSON_LENGTH, read_body, write_body
from failsoft.serving.web.protocol.inference import Caller, Inference

_ROOT = "/v2"
_MODEL, _VERSION = f"{_ROOT}/models/{{model}}", f"{_ROOT}/models/{{model}}/versions/{{release}}"
_OCTETS, _JSON = "application/octet-stream", "application/json"
_NOT_READY = 503


def add_protocol(app: FastAPI, inference: Inference) -> None:
    """Add the routes to a gateway's app."""
    _add_health(app, inference)
    _add_metadata(app, inference)
    _add_infer(app, inference)


def _add_health(app: FastAPI, inference: Inference) -> None:
    async def live() -> JSONResponse:
        return JSONResponse({"live": True})

    async def ready() -> JSONResponse:
        well = inference.is_ready()
        said: dict[str, Any] = {"ready": well, "live": True}
        said |= {} if well else {"error": "a background duty of this gateway has ended; Serve replaces it"}
        return JSONResponse(said, 200 if well else _NOT_READY)

    async def model_ready(request: Request) -> JSONResponse:
        model, release = _named(request)
        why = inference.why_not_ready(model, release)
        said: dict[str, Any] = {"name": model, "ready": why is None}
        return JSONResponse(said if why is None else said | {"error": why}, 200 if why is None else _NOT_READY)

    _get(app, f"{_ROOT}/health/live", live)
    _get(app, f"{_ROOT}/health/ready", ready)
    for path in (_MODEL, _VERSION):
        _get(app, f"{path}/ready", model_ready)


def _add_metadata(app: FastAPI, inference: Inference) -> None:
    async def server() -> JSONResponse:
        return JSONResponse(inference.server_card())

    async def model(request: Request) -> JSONResponse:
        return JSONResponse(inference.model_card(*_named(request)))

    _get(app, _ROOT, server)
    for path in (_MODEL, _VERSION):
        _get(app, path, model)


def _named(request: Request) -> tuple[str, str]:
    """Model and version in the path; an empty version is none."""
    return request.path_params["model"], request.path_params.get("release", "")


def _get(app: FastAPI, path: str, answer: Callable[..., Any]) -> None:
    app.add_api_route(path, answer, methods=["GET"], include_in_schema=False, response_model=None)


def _add_infer(app: FastAPI, inference: Inference) -> None:
    async def infer(
        request: Request,
        ms: WaitsMs = None,
        caller: CallerId = None,
        key: SessionId = None,
        request_id: RequestId = None,
    ) -> Response:
        if request.headers.get("content-encoding", "identity") != "identity":
            raise BadRequestError("compressed bodies are not read here; send it as it is")
        asked = read_body(await request.body(), request.headers.get(JSON_LENGTH))
        who = Caller(timeout_ms=ms, caller=caller, session=key, request_id=request_id)
        response = await inference.infer(*_named(request), asked, who)
        body, json_length = write_body(response, asked)
        headers = dict(response.headers) | ({} if json_length is None else {JSON_LENGTH: str(json_length)})
        return Response(body, headers=headers, media_type=_JSON if json_length is None else _OCTETS)

    for path in (_MODEL, _VERSION):
        app.add_api_route(
            f"{path}/infer",
            infer,
            methods=["POST"],
            include_in_schema=False,
            response_model=None,
            dependencies=[Depends(of_one_caller)],
        )
