"""Guessing tokens: bounded for each address, harmless to whoever has the right one, and to memory."""

from __future__ import annotations

import httpx
import pytest
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from failsoft.errors import ConfigError, NotAuthorizedError
from failsoft.health.clock import ManualClock
from failsoft.serving.web.auth import bearer_guard
from failsoft.serving.web.guess_limit import MOST_WRONG, WITHIN_S, GuessLimit

pytestmark = pytest.mark.anyio
STRONG, WEAK = "a" * 32, "anna-has-thought-it"


class Orders:
    """Answers 200 to the right token, else 401."""

    def __init__(self, token: str) -> None:
        self._guard, self.looked_at = bearer_guard(token), 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.looked_at += 1
        given = dict(scope["headers"]).get(b"authorization", b"").decode("latin-1")
        try:
            self._guard(given)
        except NotAuthorizedError:
            await Response(status_code=401)(scope, receive, send)
            return
        await Response("done")(scope, receive, send)


async def ask(app: ASGIApp, token: str | None, *, address: str = "192.0.2.1") -> httpx.Response:
    transport = httpx.ASGITransport(app=app, client=(address, 4711))
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as http:
        return await http.post("/v1/degrade", headers={} if token is None else {"Authorization": f"Bearer {token}"})


async def exhausted(app: ASGIApp, *, address: str = "192.0.2.1") -> None:
    for number in range(MOST_WRONG):
        assert (await ask(app, f"guess-number-{number}", address=address)).status_code == 401


async def test_beyond_a_few_wrong_tokens_an_address_hears_429_and_for_how_long() -> None:
    clock = ManualClock()
    orders = Orders(WEAK)
    limit = GuessLimit(orders, clock)
    await exhausted(limit)
    looked_at = orders.looked_at
    refused = await ask(limit, WEAK)
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "60")
    assert orders.looked_at == looked_at, "a token that somebody thought up must not be looked at: it may be a guess"
    assert (await ask(limit, WEAK, address="192.0.2.2")).status_code == 200
    clock.advance(WITHIN_S)
    assert (await ask(limit, WEAK)).status_code == 200


async def test_strangers_behind_the_same_proxy_can_not_keep_the_operator_out() -> None:
    limit = GuessLimit(Orders(STRONG), ManualClock())
    await exhausted(limit)
    assert (await ask(limit, STRONG)).status_code == 200
    assert (await ask(limit, "b" * 32)).status_code == 429


async def test_an_outdated_token_that_is_sent_again_and_again_counts_once() -> None:
    limit = GuessLimit(Orders(WEAK), ManualClock())
    for _ in range(3 * MOST_WRONG):
        assert (await ask(limit, "outdated-for-a-year")).status_code == 401
    assert (await ask(limit, WEAK)).status_code == 200


async def test_without_a_token_nobody_guesses() -> None:
    limit = GuessLimit(Orders(WEAK), ManualClock())
    for _ in range(3 * MOST_WRONG):
        assert (await ask(limit, None)).status_code == 401
    assert limit.remembered == 0


async def test_all_addresses_of_a_network_are_one_and_those_of_another_are_not() -> None:
    limit = GuessLimit(Orders(WEAK), ManualClock())
    for number in range(MOST_WRONG):
        await ask(limit, f"guess-number-{number}", address=f"2001:db8::{number + 1:x}")
    assert (await ask(limit, WEAK, address="2001:db8::ffff")).status_code == 429
    assert (await ask(limit, WEAK, address="2001:db8:0:1::1")).status_code == 200
    assert (await ask(limit, WEAK, address="::ffff:192.0.2.1")).status_code == 200


async def test_what_is_remembered_of_guesses_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("failsoft.serving.web.guess_limit._ADDRESSES", 8)
    limit = GuessLimit(Orders(WEAK), ManualClock())
    for number in range(50):
        await ask(limit, "guess-number-one", address=f"192.0.2.{number}")
    assert limit.remembered == 8


def test_no_guess_at_all_is_no_setting() -> None:
    with pytest.raises(ConfigError, match="people mistype"):
        GuessLimit(Orders(WEAK), ManualClock(), most_wrong=0)
