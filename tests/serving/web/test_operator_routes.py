"""The operator's orders over HTTP: who may give them, and how refusals read. No Ray."""

from __future__ import annotations

from typing import Any

import pytest

from failsoft.errors import ArtifactMissingError, DamagedArtifactError, IncompatibleArtifactError, PlanStoreError
from tests.serving.web.test_routes import OPERATOR, FakeFront, client

pytestmark = pytest.mark.anyio


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
        await http.post("/v1/degrade", json={"for_s": 60, "why": "02:15", "by": "anna"}, headers=OPERATOR)
        await http.post("/v1/restore", json={"why": "done"}, headers=OPERATOR)
        await http.post("/v1/releases/r2/propose", headers=OPERATOR)
        await http.post("/v1/releases/r2/propose?again=true", headers=OPERATOR)
    assert front.orders == [
        ("degrade", 60.0, "02:15", "anna"),
        ("restore", "done", "operator"),
        ("propose", "r2", False),
        ("propose", "r2", True),
    ]


async def test_an_order_that_could_not_be_made_durable_says_so() -> None:
    front = FakeFront()
    front.fails_with = PlanStoreError("the disk is full; free some space")
    async with client(front) as http:
        response = await http.post("/v1/degrade", json={"why": "02:15"}, headers=OPERATOR)
    assert response.status_code == 503
    assert "free some space" in response.json()["detail"]


async def test_a_force_of_no_time_is_refused() -> None:
    async with client(FakeFront()) as http:
        response = await http.post("/v1/degrade", json={"for_s": 0, "why": "x"}, headers=OPERATOR)
    assert response.status_code == 422


@pytest.mark.parametrize(
    ("path", "order"),
    [
        ("/v1/degrade", {"why": "02:15", "for": 3600}),  # would hold for ever
        ("/v1/degrade", {"why": "02:15", "for_s": True}),
        ("/v1/degrade", {"why": "02:15", "for_s": "3600"}),
        ("/v1/restore", {"why": "mended", "when": "later"}),
    ],
)
async def test_an_order_with_something_else_in_it_is_refused_instead_of_half_obeyed(
    path: str, order: dict[str, Any]
) -> None:
    front = FakeFront()
    async with client(front) as http:
        response = await http.post(path, json=order, headers=OPERATOR)
    assert (response.status_code, front.orders) == (422, [])


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ArtifactMissingError("no release named 'r9'; there: r1"), 404),
        (DamagedArtifactError("r9 is torn"), 409),
        (IncompatibleArtifactError("r9 is newer"), 409),
    ],
)
async def test_a_release_that_can_not_be_proposed_is_the_orders_fault_and_not_the_gateways(
    error: Exception, status: int
) -> None:
    front = FakeFront()
    front.fails_with = error
    async with client(front) as http:
        response = await http.post("/v1/releases/r9/propose", headers=OPERATOR)
    assert (response.status_code, response.json()["detail"]) == (status, str(error))
