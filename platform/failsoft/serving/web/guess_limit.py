"""Wrong tokens are counted by the address that they come from; beyond a few it hears 429 for a while.

Two accidents shape it. A script that keeps sending an outdated token guesses nothing, so the same wrong token counts
once. And behind a proxy, HAProxy before our gateways among them, all callers have one address: there a stranger must
not be able to keep the operator out by guessing. So a token as long as those that are made here is looked at even then,
since nobody guesses such a one; shorter ones, which somebody thought up, are not.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from dataclasses import dataclass, field
from math import ceil

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from failsoft.artifacts.tokens import digest_of
from failsoft.errors import ConfigError
from failsoft.health.clock import Clock
from failsoft.serving.web.auth import given_token
from failsoft.serving.web.problems import refusal

MOST_WRONG, WITHIN_S = 10, 60.0
"""So many different wrong tokens of one address within so long, and it is not heard until that time is over."""
UNGUESSABLE_CHARS = 32
"""Of the tokens that are made here: 192 random bits."""
_ADDRESSES = 4096
"""Those that guessed wrong last are remembered: 4 MB at most."""
_NETWORK_BITS = 64
"""Of an IPv6 address: whoever has one has all of its network."""
_UNAUTHORIZED, _TOO_MANY = 401, 429


@dataclass(frozen=True, kw_only=True)
class _Guesses:
    since_s: float
    wrong: set[bytes] = field(default_factory=set)


class GuessLimit:
    """ASGI middleware: 429 instead of 401 for an address that sent too many different wrong tokens.

    Args:
        app: what lies behind; answers 401 to a wrong token.
        clock: tells how long ago a guess was made.
        most_wrong: different wrong tokens that one address has.
        within_s: within this time, from the first of them on.
    """

    def __init__(self, app: ASGIApp, clock: Clock, *, most_wrong: int = MOST_WRONG, within_s: float = WITHIN_S) -> None:
        if most_wrong < 1:
            raise ConfigError(f"most_wrong is {most_wrong}; people mistype, leave them 1 guess at least")
        self._app, self._clock = app, clock
        self._most_wrong, self._within_s = most_wrong, within_s
        self._of: OrderedDict[str, _Guesses] = OrderedDict()

    @property
    def remembered(self) -> int:
        """Addresses that guessed wrong."""
        return len(self._of)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand the request on, unless it guesses once more."""
        token = _token(scope)
        if token is None:
            await self._app(scope, receive, send)
            return
        address = _address(scope)
        if self._is_shut(address) and len(token) < UNGUESSABLE_CHARS:
            await self._shut_out(address, scope, receive, send)
            return
        is_swallowed = False

        async def counted(message: Message) -> None:
            nonlocal is_swallowed
            if message["type"] == "http.response.start" and message["status"] == _UNAUTHORIZED:
                is_swallowed = self._is_shut(address)
                self._count(address, token)
            if not is_swallowed:
                await send(message)

        await self._app(scope, receive, counted)
        if is_swallowed:
            await self._shut_out(address, scope, receive, send)

    def shut_s(self, address: str) -> int:
        """Whole seconds until the address is heard again; 0: it is heard."""
        found = self._of.get(address)
        if found is None or len(found.wrong) < self._most_wrong:
            return 0
        return max(0, ceil(found.since_s + self._within_s - self._clock.monotonic_s()))

    def _is_shut(self, address: str) -> bool:
        return self.shut_s(address) > 0

    def _count(self, address: str, token: str) -> None:
        now_s = self._clock.monotonic_s()
        found = self._of.get(address)
        if found is None or now_s - found.since_s >= self._within_s:
            found = self._of[address] = _Guesses(since_s=now_s)
        if len(found.wrong) < self._most_wrong:
            found.wrong.add(digest_of(token)[:8])
        self._of.move_to_end(address)
        if len(self._of) > _ADDRESSES:
            self._of.popitem(last=False)

    async def _shut_out(self, address: str, scope: Scope, receive: Receive, send: Send) -> None:
        wait_s = max(1, self.shut_s(address))
        why = f"too many wrong tokens from {address}; it is heard again in {wait_s} s"
        await refusal(scope, _TOO_MANY, why, {"Retry-After": str(wait_s)})(scope, receive, send)


def _token(scope: Scope) -> str | None:
    if scope["type"] != "http":
        return None
    for name, value in scope["headers"]:
        if name == b"authorization":
            return given_token(value.decode("latin-1"))
    return None


def _address(scope: Scope) -> str:
    host = (scope.get("client") or ("unknown", 0))[0]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return str(host)[:100]
    if isinstance(address, ipaddress.IPv6Address):
        mapped = address.ipv4_mapped
        return str(mapped or ipaddress.ip_network((int(address), _NETWORK_BITS), strict=False))
    return str(address)
