"""Any body at the routes that take orders, labels and alerts: obeyed whole, or refused in words; never a 5xx."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import anyio
import httpx
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from failsoft.alerts.receiver import build_receiver
from failsoft.alerts.settings import Action, Rule
from failsoft.serving.intents import INTENTS
from failsoft.serving.web.auth import label_guard
from failsoft.serving.web.label_routes import LABELS, add_labels
from failsoft.serving.web.routes import build_routes
from failsoft.serving.web.wire import wire_of
from tests.security.odd_bytes import DEEP, HUGE, odd_json
from tests.serving.web.test_routes import OPERATOR, TOKEN, FakeFront, guard

NOTICE = {
    "version": "4",
    "groupKey": "{}",
    "alerts": [{"status": "firing", "labels": {"alertname": "Burn", "run": "one"}, "annotations": {"summary": "s"}}],
}
ROUTES: dict[str, object] = {
    "/v1/degrade": {"for_s": 60, "why": "w", "by": "anna"},
    "/v1/restore": {"why": "w", "by": "anna"},
    LABELS: {"labels": [{"request_id": "7c0f", "item": 0, "label": "PlayMusic"}]},
    "/v1/alerts": NOTICE,
}
drawn = st.sampled_from(list(ROUTES)).flatmap(
    lambda path: st.tuples(st.just(path), odd_json(ROUTES[path]) | st.sampled_from([HUGE, DEEP[:3000]]))
)
types = st.sampled_from(
    ["application/json", "text/plain", "application/json; charset=utf-16", "application/json;;=", ""]
)


class Acts:
    """Obeys."""

    def degrade(self, *, for_s: float, why: str) -> str:
        return f"held back for {for_s} s: {why}"

    def stop_run(self, run: str, *, why: str) -> str:
        return f"{run} was told: {why}"


@cache
def gateway() -> FastAPI:
    app = build_routes(FakeFront(), guard, wire=wire_of(INTENTS))
    add_labels(app, lambda told: {"counted": len(told)}, label_guard("l" * 20, TOKEN))
    return app


RULES = [Rule(alert="Burn", action=Action.DEGRADE)]


@cache
def receiver() -> FastAPI:
    return build_receiver(rules=lambda: RULES, acts=Acts(), token=TOKEN)


def send(app: FastAPI, path: str, body: bytes, headers: Mapping[str, str]) -> httpx.Response:
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app=app)  # raises whatever the app raises
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as http:
            return await http.post(path, content=body, headers={**OPERATOR, **headers})

    return anyio.run(ask)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(asked=drawn, kind=types)
def test_any_body_is_obeyed_or_refused_in_words(asked: tuple[str, bytes], kind: str) -> None:
    path, body = asked
    app = receiver() if path == "/v1/alerts" else gateway()
    answer = send(app, path, body, {"Content-Type": kind})
    assert answer.status_code in {200, 400, 413, 415, 422}
    assert answer.json()
