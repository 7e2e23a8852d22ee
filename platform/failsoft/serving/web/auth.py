"""Who may give orders: a bearer token, compared in constant time."""

from __future__ import annotations

import hmac
from collections.abc import Callable

from failsoft.errors import NotAuthorizedError

_SCHEME = "bearer"


def bearer_guard(token: str) -> Callable[[str | None], None]:
    """A check of ``Authorization`` headers that raises NotAuthorizedError unless the header carries ``token``.

    How long the check takes says nothing about how much of a guess was right.
    """
    expected = _as_bytes(token)

    def check(authorization: str | None) -> None:
        scheme, _, given = (authorization or "").partition(" ")
        right = hmac.compare_digest(_as_bytes(given.strip()), expected)
        if not (right and scheme.lower() == _SCHEME and expected):
            raise NotAuthorizedError(
                "this route is the operator's: send 'Authorization: Bearer TOKEN' with the token from the file "
                "operator-token in the home folder, or from $FAILSOFT_TOKEN"
            )

    return check


def _as_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
