"""Who may give orders: a bearer token, compared by its digest and in constant time."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass

from failsoft.artifacts.tokens import Digests, digest_of
from failsoft.errors import NotAuthorizedError

_SCHEME = "bearer"
Guard = Callable[[str | None], None]
"""Raises NotAuthorizedError unless an Authorization header may pass."""


@dataclass(frozen=True, kw_only=True)
class Guards:
    """Who may pass which of a gateway's doors."""

    operator: Guard
    """To give orders."""
    reader: Guard | None = None
    """To read what the gateway says of itself: its status, the rollout, the console. None: everybody may."""


def bearer_guard(token: str | Digests) -> Guard:
    """A check of ``Authorization`` headers that raises NotAuthorizedError unless the header carries ``token``.

    Args:
        token: the one that opens, or what gives the digests of those that open now.
    """
    return _guard(
        [token],
        "this route is the operator's: send 'Authorization: Bearer TOKEN' with the token from the file operator-token "
        "in the home folder, or from $FAILSOFT_TOKEN",
    )


def label_guard(token: str | Digests, operator: str | Digests) -> Guard:
    """The same for labels: either token opens that route."""
    return _guard(
        [token, operator],
        "labels need a token: send 'Authorization: Bearer TOKEN' with the token from the file label-token in the home "
        "folder, or from $FAILSOFT_LABEL_TOKEN",
    )


def viewer_guard(token: str | Digests, operator: str | Digests) -> Guard:
    """The same for reading what a gateway says of itself, where that needs a token."""
    return _guard(
        [token, operator],
        "this gateway is read with a token: send 'Authorization: Bearer TOKEN' with the one from the file viewer-token "
        "in the home folder, or from $FAILSOFT_VIEWER_TOKEN; the operator's opens it, too",
    )


def given_token(authorization: str | None) -> str | None:
    """The token of a header; None where there is none, or another scheme's."""
    scheme, _, given = (authorization or "").partition(" ")
    return given.strip() if scheme.lower() == _SCHEME and given.strip() else None


def _guard(tokens: list[str | Digests], refusal: str) -> Guard:
    """How long the check takes says nothing about how much of a guess was right."""
    opening = [_digests(token) for token in tokens]

    def check(authorization: str | None) -> None:
        token = given_token(authorization)
        given = digest_of(token or "")
        right = [hmac.compare_digest(given, one) for digests in opening for one in digests()]
        if token is None or not any(right):
            raise NotAuthorizedError(refusal)

    return check


def _digests(token: str | Digests) -> Digests:
    if not isinstance(token, str):
        return token
    known = (digest_of(token),) if token else ()
    return lambda: known
