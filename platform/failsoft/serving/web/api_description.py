"""The OpenAPI document: what each route takes, gives and refuses, with examples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from failsoft.serving.web.examples import DETAILS
from failsoft.serving.web.problems import MEDIA_TYPE, Problem, problem

Responses = dict[int | str, dict[str, Any]]

_HEADERS: dict[int, dict[str, Any]] = {
    401: {"WWW-Authenticate": {"schema": {"type": "string"}, "description": "The scheme, Bearer."}},
    429: {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds until it is worth trying again."}},
}


def refusals(path: str, *statuses: int) -> Responses:
    """The problems that a route may answer with; every route may fail with 500."""
    return {status: _refusal(path, status) for status in (*statuses, 500)}


def describe(app: FastAPI, answers: Mapping[str, Mapping[str, Any]]) -> None:
    """Complete the description of ``app``.

    Args:
        app: with all its routes.
        answers: for each path examples of what it says when all is well. They are put in at the end, since FastAPI
            drops every null from them, and a null is what an answer of the rules has for its confidence.
    """

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
            document["components"]["schemas"]["Problem"] = Problem.model_json_schema()
            for path, examples in answers.items():
                for operation in document["paths"][path].values():
                    operation["responses"]["200"]["content"]["application/json"]["examples"] = dict(examples)
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's documented way


def _refusal(path: str, status: int) -> dict[str, Any]:
    example = problem(status, DETAILS[status], instance=path)
    content = {"schema": {"$ref": "#/components/schemas/Problem"}, "examples": {"problem": {"value": example}}}
    described: dict[str, Any] = {"description": example["title"], "content": {MEDIA_TYPE: content}}
    return described | ({"headers": _HEADERS[status]} if status in _HEADERS else {})
