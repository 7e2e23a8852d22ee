"""Error bodies in the form of RFC 9457, ``application/problem+json``."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse
from starlette.types import Scope

MEDIA_TYPE = "application/problem+json"
PROTOCOL = "/v2"
"""Below it the Open Inference Protocol holds, which has a form of its own for errors."""


class Problem(BaseModel):
    """What went wrong with one request, and what to do about it."""

    model_config = ConfigDict(json_schema_extra={"description": "An error body (RFC 9457)."})

    type: str = Field(
        default="about:blank", description="A URI for the kind of problem; about:blank: the status says it all."
    )
    title: str = Field(description="The status in words.")
    status: int = Field(ge=400, le=799, description="The HTTP status.")
    detail: str = Field(description="What is wrong, and what to do.")
    instance: str | None = Field(default=None, description="The path that was asked for, as a URI reference.")


def problem(status: int, detail: str, *, instance: str | None = None) -> dict[str, Any]:
    """The body for an HTTP error; ``instance`` is the path of the request."""
    where = None if instance is None else quote(whole(instance))
    return Problem(title=_title(status), status=status, detail=whole(detail), instance=where).model_dump()


def problem_answer(
    status: int, detail: str, *, instance: str | None = None, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """The whole HTTP answer."""
    return JSONResponse(problem(status, detail, instance=instance), status, headers, media_type=MEDIA_TYPE)


def refusal(scope: Scope, status: int, detail: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """The whole HTTP answer to a request that fails, in the form of what was asked."""
    path = path_in_app(scope)
    if path == PROTOCOL or path.startswith(f"{PROTOCOL}/"):
        return JSONResponse({"error": whole(detail)}, status, headers)
    return problem_answer(status, detail, instance=scope["path"], headers=headers)


def path_in_app(scope: Scope) -> str:
    """The path of a request, wherever the app is mounted."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


def whole(text: str) -> str:
    """The text with half characters replaced: what JSON and logs can carry."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _title(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Error"
