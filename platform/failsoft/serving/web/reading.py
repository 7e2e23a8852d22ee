"""Who may read what a gateway says of itself: everybody, or, where the app's setting says so, who has a token.

One rule for the status, the rollout and the console's feed: each shows what the others show. Whether the gateway lives
(``/healthz``, and ``/v2/health`` of the protocol) is told to everybody, as are answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from failsoft.serving.web.auth import Guard

_Token = Annotated[
    HTTPAuthorizationCredentials | None,
    Security(HTTPBearer(auto_error=False, scheme_name="reader", description="The viewer token, or the operator's.")),
]


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What a route needs to know of it."""

    dependencies: Sequence[Any] = ()
    """Of FastAPI's; each raises NotAuthorizedError for who may not read."""
    refusals: tuple[int, ...] = ()
    """Statuses that they may lead to."""


def reading_of(guard: Guard | None) -> Reading:
    """Of that guard; None lets everybody read."""
    if guard is None:
        return Reading()

    def reader(token: _Token) -> None:
        guard(None if token is None else f"{token.scheme} {token.credentials}")

    return Reading(dependencies=[Depends(reader)], refusals=(401,))
