"""What a proxy or a caller may say of a request beside its body."""

from __future__ import annotations

from typing import Annotated

from fastapi import Header, Request

from failsoft.errors import BadRequestError
from failsoft.serving.web.messages import MAX_ID_CHARS, MAX_TIMEOUT_MS

_TIMEOUT, _CALLER, _KEY = "X-Request-Timeout-Ms", "X-Caller-Id", "X-Session-Id"
NAMED = frozenset(name.lower().encode() for name in (_TIMEOUT, _CALLER, _KEY))
"""As they come over the wire."""

WaitsMs = Annotated[
    float | None,
    Header(
        alias=_TIMEOUT,
        gt=0.0,
        le=MAX_TIMEOUT_MS,
        description="As timeout_ms; the shorter holds.",
        examples=[150.0],
    ),
]

CallerId = Annotated[
    str | None,
    Header(
        alias=_CALLER,
        min_length=1,
        max_length=MAX_ID_CHARS,
        description="As caller, and before it: for a proxy that knows whose request it is.",
        examples=["tenant-4"],
    ),
]

SessionId = Annotated[
    str | None,
    Header(
        alias=_KEY,
        min_length=1,
        max_length=MAX_ID_CHARS,
        description="As key, and before it: the same session stays with the same model.",
        examples=["session-17"],
    ),
]


async def of_one_caller(request: Request) -> None:
    """A proxy may have added its own word to what a caller claims to be; which of both came first proves nothing."""
    if len(set(request.headers.getlist(_CALLER))) > 1:
        raise BadRequestError(f"{_CALLER} is there twice; let the proxy replace what callers send")
