"""Who may give orders: a bearer token, compared in constant time."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Sequence

from failsoft.errors import NotAuthorizedError

_SCHEME = "bearer"
Guard = Callable[[str | None], None]
"""Raises NotAuthorizedError unless an Authorization header may pass."""


def bearer_guard(token: str) -> Guard:
    """A check of ``Authorization`` headers that raises NotAuthorizedError unless the header carries ``token``."""
    return _guard(
        [token],
        "this route is the operator's: send 'Authorization: Bearer TOKEN' with the token from the file operator-token "
        "in the home folder, or from $FAILSOFT_TOKEN",
    )


def label_guard(token: str, operator: str) -> Guard:
    """The same for labels: either token opens that route."""
    return _guard(
        [token, operator],
        "labels need a token: send 'Authorization: Bearer TOKEN' with the token from the file label-token in the home "
        "folder, or from $FAILSOFT_LABEL_TOKEN",
    )


def viewer_guard(token: str, operator: str) -> Guard:
    """The same for reading the console, where that needs a token."""
    return _guard(
        [token, operator],
        "the console needs a token here: give the one from the file viewer-token in the home folder, or the operator's",
    )


def _guard(tokens: Sequence[str], refusal: str) -> Guard:
    """How long the check takes says nothing about how much of a guess was right."""
    expected = [_as_bytes(token) for token in tokens]

    def check(authorization: str | None) -> None:
        scheme, _, given = (authorization or "").partition(" ")
        right = [bool(one) and hmac.compare_digest(_as_bytes(given.strip()), one) for one in expected]
        if not (any(right) and scheme.lower() == _SCHEME):
            raise NotAuthorizedError(refusal)

    return check


def _as_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
