"""The operator's routes for a release on its way: who may, what is told to the controller, what comes back. No Ray."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
import pytest
from fastapi.openapi.models import OpenAPI
from jsonschema import Draft202012Validator

from failsoft.errors import ConfigError, PlanStoreError, ServingError
from failsoft.serving.intents import INTENTS
from failsoft.serving.plan.plan import RoutingPlan
from failsoft.serving.rollout.steering import Steering
from failsoft.serving.rollout.transitions import first_state
from failsoft.serving.web.routes import build_routes
from failsoft.serving.web.wire import wire_of
from tests.serving.web.test_routes import OPERATOR, FakeFront, guard

pytestmark = pytest.mark.anyio
AFTER = replace(first_state("r1").plan, epoch=8)
VERBS = ("abort", "hold", "resume", "advance")


@dataclass
class FakeControls:
    """Writes orders down; refuses as told."""

    fails_with: Exception | None = None
    orders: list[tuple[str, ...]] = field(default_factory=list)

    async def abort(self, release: str, why: str, by: str) -> RoutingPlan:
        return self._order("abort", release, why, by)

    async def hold(self, release: str, why: str, by: str) -> RoutingPlan:
        return self._order("hold", release, why, by)

    async def resume(self, release: str, why: str, by: str) -> RoutingPlan:
        return self._order("resume", release, why, by)

    async def advance(self, release: str, from_stage: str, why: str, by: str) -> RoutingPlan:
        return self._order("advance", release, from_stage, why, by)

    async def status(self) -> dict[str, Any]:
        self._order("status")
        return {"waits_for": "412 of 450 answers"}

    def _order(self, *order: str) -> RoutingPlan:
        if self.fails_with:
            raise self.fails_with
        self.orders.append(order)
        return AFTER


class Operator:
    """The routes with a controller in hand."""

    def __init__(self, fails_with: Exception | None = None) -> None:
        self.controls, self.followed = FakeControls(fails_with), list[RoutingPlan]()
        steering = Steering(self.controls, self.followed.append)
        self.app = build_routes(FakeFront(), guard, wire=wire_of(INTENTS), steers=steering)

    async def post(self, verb: str, body: dict[str, Any], headers: dict[str, str] | None = None) -> httpx.Response:
        return await self._send("POST", f"/v1/releases/r2/{verb}", json=body, headers=headers or OPERATOR)

    async def rollout(self) -> httpx.Response:
        return await self._send("GET", "/v1/rollout")

    async def _send(self, method: str, path: str, **request: Any) -> httpx.Response:
        transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as http, asyncio.timeout(60.0):
            return await http.request(method, path, **request)


def body_of(verb: str) -> dict[str, str]:
    return {"why": "looks wrong", "by": "anna"} | ({"from_stage": "shadow"} if verb == "advance" else {})


@pytest.mark.parametrize("verb", VERBS)
async def test_an_order_is_passed_on_with_who_and_why_and_this_replica_follows_at_once(verb: str) -> None:
    operator = Operator()
    response = await operator.post(verb, body_of(verb))
    assert (response.status_code, response.json()) == (200, AFTER.as_json())
    step = ("shadow",) if verb == "advance" else ()
    assert operator.controls.orders == [(verb, "r2", *step, "looks wrong", "anna")]
    assert operator.followed == [AFTER]


@pytest.mark.parametrize("verb", VERBS)
async def test_without_the_token_nothing_happens(verb: str) -> None:
    operator = Operator()
    response = await operator.post(verb, body_of(verb), {"Authorization": "Bearer wrong"})
    assert (response.status_code, operator.controls.orders) == (401, [])


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    "spoiled", [{"why": ""}, {"why": "x" * 501}, {"by": "x" * 101}, {"for_s": 3}, {"why": 7}, {"from_stage": "x" * 21}]
)
async def test_an_order_that_does_not_fit_is_refused(verb: str, spoiled: dict[str, Any]) -> None:
    operator = Operator()
    assert (await operator.post(verb, body_of(verb) | spoiled)).status_code == 422
    assert operator.controls.orders == []


@pytest.mark.parametrize(
    ("refusal", "status"),
    [(ConfigError("r2 has not passed shadow yet"), 400), (PlanStoreError("the disk is full"), 503)],
)
async def test_a_refusal_reads_as_the_controller_said_it(refusal: Exception, status: int) -> None:
    response = await Operator(refusal).post("advance", body_of("advance"))
    assert (response.status_code, response.json()["detail"]) == (status, str(refusal))


async def test_where_the_rollout_stands_needs_no_token_and_says_when_the_controller_is_away() -> None:
    assert (await Operator().rollout()).json() == {"waits_for": "412 of 450 answers"}
    assert (await Operator(ServingError("away")).rollout()).status_code == 503


def test_the_routes_are_described_with_examples_that_fit() -> None:
    document = Operator().app.openapi()
    OpenAPI.model_validate(document)
    for verb in VERBS:
        operation = document["paths"][f"/v1/releases/{{name}}/{verb}"]["post"]
        assert operation["security"]
        content = operation["requestBody"]["content"]["application/json"]
        schema = content["schema"] | {"components": document["components"]}
        for example in content["examples"].values():
            Draft202012Validator(schema).validate(example["value"])
    assert "get" in document["paths"]["/v1/rollout"]
