"""Late labels over HTTP: who may send them, what is taken, and that answers given over HTTP are found by them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest
from pydantic import BaseModel

from failsoft.artifacts.bundle import Baseline
from failsoft.health.clock import SystemClock
from failsoft.health.monitor import HealthPolicy
from failsoft.serving.arms.mirror import MirrorQueue
from failsoft.serving.config import GatewayConfig
from failsoft.serving.intake.sanitizer import TextPolicy
from failsoft.serving.intents import INTENTS
from failsoft.serving.kit import Kit, KitShelf
from failsoft.serving.plan.plan import Colour, RoutingPlan, Stage
from failsoft.serving.request import Answerer, Mirrored
from failsoft.serving.several import answer_all
from failsoft.serving.watching.front import FrontDesk
from failsoft.serving.watching.label_exchange import LabelExchange
from failsoft.serving.watching.outcomes import OutcomeBuffer
from failsoft.serving.watching.watch import Watch
from failsoft.serving.web.auth import bearer_guard, label_guard
from failsoft.serving.web.label_routes import LABELS, MAX_LABELS, add_labels
from failsoft.serving.web.messages import Ask
from failsoft.serving.web.routes import build_routes
from failsoft.serving.web.wire import wire_of
from tests.serving.fakes import ScriptedArm, ladder, plan
from tests.serving.labels import labels_of
from tests.serving.watching.test_label_exchange import PostHere, exchanging, until
from tests.serving.web.test_routes import FakeFront

pytestmark = pytest.mark.anyio
OPERATOR, LABELLER = "o" * 20, "l" * 20
BASELINE = Baseline(
    samples=200,
    weak_fraction=0.01,
    entropy_mean=0.1,
    entropy_std=0.05,
    logit_std=2.0,
    oov_fraction=0.0,
    label_mix={"play_music": 0.5, "get_weather": 0.5},
    accuracy=0.95,
)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Replica(FakeFront):
    """A gateway replica without Ray: real routes, answerer, desk, watch and labels; scripted models."""

    def __init__(self) -> None:
        super().__init__()
        self.plan: RoutingPlan = plan()
        self.buffer, self.trips = OutcomeBuffer("g"), list[str]()
        watch = Watch(HealthPolicy(), lambda _, why: self._fall(why))
        self.labels = labels_of(
            lambda: self.plan, watch, self.buffer, clock=SystemClock(), known=tuple(BASELINE.label_mix)
        )
        kit = Kit(release="r1", ladder=ladder(), text_policy=TextPolicy(), baseline=BASELINE)
        mirror: MirrorQueue[Mirrored] = MirrorQueue(1)
        self.desk = FrontDesk(
            plan=lambda: self.plan,
            shelf=KitShelf(lambda _: kit, kit),
            watch=watch,
            buffer=self.buffer,
            mirror=mirror,
            labels=self.labels,
        )
        self.answerer = Answerer(
            situation=self.desk.situation,
            models={Colour.BLUE: ScriptedArm()},
            journal=self.desk,
            clock=SystemClock(),
            config=GatewayConfig(deadline_ms=60_000.0),  # a busy machine is not what these tests are about
            task=INTENTS,
        )

    async def predict(self, request: Ask) -> BaseModel:  # type: ignore[override]  # the fake's answer is more special
        answers = await answer_all(self.answerer, request, request_id=request.request_id or "none", clock=SystemClock())
        return INTENTS.answers.several()(answers=answers) if request.is_several else answers[0]

    def status(self) -> dict[str, Any]:
        return self.desk.status()

    def _fall(self, why: str) -> None:
        self.trips.append(why)
        self.plan = replace(self.plan, stage=Stage.DEGRADED, share=0.0, epoch=2, why=why)


def served(replica: Replica, exchange: LabelExchange) -> httpx.AsyncClient:
    app = build_routes(replica, bearer_guard(OPERATOR), wire=wire_of(INTENTS))
    add_labels(app, exchange.take, label_guard(LABELLER, OPERATOR))
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://gateway")


@asynccontextmanager
async def two_gateways() -> AsyncIterator[tuple[Sequence[Replica], Sequence[httpx.AsyncClient]]]:
    replicas = [Replica(), Replica()]
    async with AsyncExitStack() as stack:
        exchanges = await stack.enter_async_context(exchanging(replicas, PostHere()))  # type: ignore[arg-type]  # what of a gateway has labels
        clients = [await stack.enter_async_context(served(*pair)) for pair in zip(replicas, exchanges, strict=True)]
        yield replicas, clients


def of(count: int, label: str, *, first: int = 0) -> dict[str, Any]:
    return {"labels": [{"request_id": f"q{number}", "label": label} for number in range(first, first + count)]}


async def send(http: httpx.AsyncClient, body: Any, token: str = LABELLER) -> httpx.Response:
    return await http.post(LABELS, json=body, headers={"Authorization": f"Bearer {token}"})


async def test_labels_sent_to_any_gateway_take_a_sure_and_wrong_model_out_of_service() -> None:
    async with two_gateways() as (replicas, clients):
        here, there = clients
        for number in range(25):
            await here.post("/v1/predict", json={"text": "will it rain", "request_id": f"q{number}"})
        assert (await here.get("/v1/status")).json()["counts"]["answers_by_source"] == {"primary": 25}
        assert (await send(here, of(12, "get_weather"))).json() == {"counted": 12}
        assert (await send(here, of(12, "get_weather"))).json() == {"repeated": 12}
        assert (await send(there, of(13, "get_weather", first=12))).json() == {"handed_on": 13}
        await until(lambda: bool(replicas[0].trips))
        assert replicas[0].trips == ["feedback: 20 wrong of 20 with a late label, limit 20%"]
        answer = (await here.post("/v1/predict", json={"text": "will it rain", "request_id": "after"})).json()
        assert answer["source"] == "rules"
        assert "20 wrong of 20" in answer["degrade_reason"]
        assert (await send(here, of(1, "get_weather") | {})).json() == {"repeated": 1}
        body = {"labels": [{"request_id": "after", "label": "get_weather"}]}
        assert (await send(here, body)).json() == {"not_a_models": 1}
        status = (await here.get("/v1/status")).json()
        assert status["late_labels"]["answers_remembered"] == 26
        assert status["health"]["signals"]["feedback"].startswith("20 wrong of 20")


async def test_labels_of_several_items_find_each_its_own_answer() -> None:
    async with two_gateways() as (replicas, (here, _)):
        await here.post("/v1/predict", json={"texts": ["a b", "c d", "e f"], "request_id": "b1", "key": "k"})
        labels = [{"request_id": "b1", "item": row, "label": "play_music"} for row in (0, 2)]
        assert (await send(here, {"labels": labels})).json() == {"counted": 2}
        assert replicas[0].labels.status()["answers_remembered"] == 3


async def test_only_the_label_token_and_the_operators_open_the_route() -> None:
    async with two_gateways() as (_, (here, _there)):
        for token, status in ((LABELLER, 200), (OPERATOR, 200), ("x" * 20, 401), ("", 401)):
            assert (await send(here, of(1, "play_music"), token)).status_code == status, token
        nobody = await here.post(LABELS, json=of(1, "play_music"))
        assert (nobody.status_code, nobody.headers["WWW-Authenticate"]) == (401, "Bearer")
        assert "label-token" in nobody.json()["detail"]
        order = await here.post("/v1/restore", json={"why": "x"}, headers={"Authorization": f"Bearer {LABELLER}"})
        assert order.status_code == 401, "whoever labels gives no orders"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"labels": []},
        of(MAX_LABELS + 1, "play_music"),
        {"labels": [{"request_id": "", "label": "a"}]},
        {"labels": [{"request_id": "q", "item": -1, "label": "a"}]},
        {"labels": [{"request_id": "q", "item": 64, "label": "a"}]},
        {"labels": [{"request_id": "q"}]},
        {"labels": [{"request_id": "q", "label": "a" * 2000}]},
        {"labels": [{"request_id": "q", "label": "a", "more": 1}]},
    ],
)
async def test_what_is_no_label_is_refused_in_words(body: dict[str, Any]) -> None:
    async with two_gateways() as (_, (here, _there)):
        answer = await send(here, body)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("inside", [False, True])
async def test_a_body_of_nothing_but_misfits_is_refused_in_few_words(inside: bool) -> None:
    """Each of them was named: 1 MB made 5 MB of words, and no caller was answered for 4 s."""
    misfits = {f"{place:x}": 1 for place in range(5_000)}
    body = of(1, "play_music") | ({} if inside else misfits)
    body["labels"][0] |= misfits if inside else {}
    async with two_gateways() as (_, (here, _there)):
        answer = await send(here, body)
    assert (answer.status_code, len(answer.text) < 500) == (422, True)
    assert "5000 parts of it do not fit" in answer.json()["detail"]


async def test_the_route_is_described_with_examples() -> None:
    async with two_gateways() as (_, (here, _there)):
        document = (await here.get("/openapi.json")).json()
    route = document["paths"][LABELS]["post"]
    assert route["security"] == [{"labels": []}]
    example = route["requestBody"]["content"]["application/json"]["examples"]["two"]["value"]
    assert len(example["labels"]) == 2
    assert set(route["responses"]) >= {"200", "401", "413", "422", "500"}


async def test_labels_do_not_hold_up_answers() -> None:
    async with two_gateways() as (_, (here, _there)):
        waves = [send(here, of(MAX_LABELS, "get_weather")) for _ in range(4)]
        answers = [here.post("/v1/predict", json={"text": "a b", "request_id": f"x{n}"}) for n in range(4)]
        done = await asyncio.gather(*waves, *answers)
    assert {one.status_code for one in done} == {200}
