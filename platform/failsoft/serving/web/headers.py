"""What a proxy or a caller may say of a request beside its body."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from fastapi import Header, Request

from failsoft.errors import BadRequestError
from failsoft.serving.web.messages import MAX_ID_CHARS, MAX_TIMEOUT_MS

_TIMEOUT, _CALLER, _KEY = "X-Request-Timeout-Ms", "X-Caller-Id", "X-Session-Id"
_REQUEST_ID = "X-Request-Id"
_REQUEST_ID_ON_THE_WIRE = _REQUEST_ID.lower().encode()
NAMED = frozenset(name.lower().encode() for name in (_TIMEOUT, _CALLER, _KEY))
"""Those that only the long way knows, as they come over the wire."""

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


RequestId = Annotated[
    str | None,
    Header(
        alias=_REQUEST_ID,
        description="As request_id, where the body has none; one that is no id is passed over, as a proxy may add it.",
        examples=["3f1c7a52"],
    ),
]


def as_id(value: str | None) -> str | None:
    """The header's value, if it can be an id."""
    fits = value is not None and 0 < len(value) <= MAX_ID_CHARS and value.isascii() and value.isprintable()
    return value if fits else None


def request_id_of(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The id that came in a header; None where none did, or what is none."""
    for name, value in headers:
        if name == _REQUEST_ID_ON_THE_WIRE:
            return as_id(value.decode("latin-1"))
    return None


async def of_one_caller(request: Request) -> None:
    """A proxy may have added its own word to what a caller claims to be; which of both came first proves nothing."""
    if len(set(request.headers.getlist(_CALLER))) > 1:
        raise BadRequestError(f"{_CALLER} is there twice; let the proxy replace what callers send")
