"""The HTTP surface: who may do what, and how refusals read. No Ray."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from failsoft.errors import BadRequestError, NotAuthorizedError, PlanStoreError
from failsoft.serving.messages import PredictAnswer, PredictRequest
from failsoft.serving.routes import build_routes

pytestmark = pytest.mark.anyio
TOKEN = "t" * 20
OPERATOR = {"Authorization": f"Bearer {TOKEN}"}


class FakeFront:
    def __init__(self) -> None:
        self.orders: list[tuple[Any, ...]] = []
        self.fails_with: Exception | None = None

    async def predict(self, request: PredictRequest) -> PredictAnswer:
        if self.fails_with:
            raise self.fails_with
        raise NotImplementedError

    def status(self) -> dict[str, Any]:
        return {"epoch": 7}

    async def degrade(self, *, for_s: float | None, why: str) -> dict[str, Any]:
        return self._order("degrade", for_s, why)

    async def restore(self, *, why: str) -> dict[str, Any]:
        return self._order("restore", why)

    async def propose(self, release: str) -> dict[str, Any]:
        return self._order("propose", release)

    def _order(self, *order: object) -> dict[str, Any]:
        if self.fails_with:
            raise self.fails_with
        self.orders.append(order)
        return {"epoch": 8}


def guard(authorization: str | None) -> None:
    if authorization != OPERATOR["Authorization"]:
        raise NotAuthorizedError("give the operator token")


def client(front: FakeFront) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=build_routes(front, guard))
    return httpx.AsyncClient(transport=transport, base_url="http://gateway")


@pytest.mark.parametrize("path", ["/v1/degrade", "/v1/restore", "/v1/releases/r2/propose"])
async def test_an_operator_route_without_its_token_is_401_and_changes_nothing(path: str) -> None:
    front = FakeFront()
    async with client(front) as http:
        for headers in ({}, {"Authorization": "Bearer wrong"}):
            response = await http.post(path, json={"why": "drill"}, headers=headers)
            assert response.status_code == 401
            assert response.headers["content-type"] == "application/problem+json"
    assert front.orders == []


async def test_the_operator_degrades_restores_and_proposes() -> None:
    front = FakeFront()
    async with client(front) as http:
        await http.post("/v1/degrade", json={"for_s": 60, "why": "02:15"}, headers=OPERATOR)
        await http.post("/v1/restore", json={"why": "done"}, headers=OPERATOR)
        await http.post("/v1/releases/r2/propose", headers=OPERATOR)
    assert front.orders == [("degrade", 60.0, "02:15"), ("restore", "done"), ("propose", "r2")]


async def test_status_and_health_need_no_token() -> None:
    async with client(FakeFront()) as http:
        assert (await http.get("/v1/status")).json() == {"epoch": 7}
        assert (await http.get("/healthz")).status_code == 200


async def test_an_order_that_could_not_be_made_durable_says_so() -> None:
    front = FakeFront()
    front.fails_with = PlanStoreError("the disk is full; free some space")
    async with client(front) as http:
        response = await http.post("/v1/degrade", json={"why": "02:15"}, headers=OPERATOR)
    assert response.status_code == 503
    assert "free some space" in response.json()["detail"]


async def test_a_request_that_nobody_can_answer_is_400_in_words() -> None:
    front = FakeFront()
    front.fails_with = BadRequestError("give text or texts")
    async with client(front) as http:
        response = await http.post("/v1/predict", json={"text": "play jazz"})
    assert (response.status_code, response.json()["detail"]) == (400, "give text or texts")


async def test_a_force_of_no_time_is_refused() -> None:
    async with client(FakeFront()) as http:
        response = await http.post("/v1/degrade", json={"for_s": 0, "why": "x"}, headers=OPERATOR)
    assert response.status_code == 422
