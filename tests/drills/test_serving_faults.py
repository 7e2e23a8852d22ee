"""Saturation, dead processes and operators' orders on real Ray Serve: always an answer, never a 5xx."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import ray
from ray import serve

from failsoft.artifacts.home import Home
from failsoft.serving.rollout.controller import NAMESPACE, controller_name
from serve_apps.intent_ner import APP_NAME, ServeSettings
from serve_apps.runtime import Running, start
from tests.drills.serving_support import Traffic, free_port, sources, stages_of, statuses, wait_for
from tests.serving.tiny_release import TEXTS

pytestmark = pytest.mark.drill


PATIENT = {"profile": "drill", "gateways": 2, "deadline_ms": 1500.0}
"""Two busy cores must not look like a slow model here."""
BACK_S = 180.0
"""A new replica and all stages take 20 to 40 s on a quiet machine."""


@pytest.fixture
def app(serving_home: Home, ray_local: None, request: pytest.FixtureRequest) -> Iterator[Running]:
    settings = {"home": serving_home.root} | PATIENT | getattr(request, "param", {})
    running = start(ServeSettings.model_validate(settings), port=free_port())
    yield running
    running.stop()


async def flood(url: str, count: int) -> list[httpx.Response]:
    limits = httpx.Limits(max_connections=count)
    async with httpx.AsyncClient(base_url=url, timeout=30.0, limits=limits) as client:
        return await asyncio.gather(*(client.post("/v1/predict", json={"text": TEXTS[0]}) for _ in range(count)))


def outcomes(url: str, *, replicas: int) -> dict[str, int]:
    """Outcomes over all gateway replicas."""
    total: dict[str, int] = {}
    for body in statuses(url, replicas=replicas).values():
        for name, count in body["counts"]["outcomes"].items():
            total[name] = total.get(name, 0) + count
    return total


ONE_AT_A_TIME = {"gateways": 1, "max_model_queue": 1, "max_model_ongoing": 1}


@pytest.mark.parametrize("app", [ONE_AT_A_TIME], indirect=True)
def test_a_saturated_model_sheds_load_to_the_fallback_and_is_not_called_bad(app: Running) -> None:
    """R5: Ray turns back-pressure of a child into a 500."""
    responses = asyncio.run(flood(app.url, 150))
    assert {response.status_code for response in responses} == {200}
    answers = [response.json() for response in responses]
    instead = [answer for answer in answers if answer["source"] in {"gbdt", "rules"}]
    assert any("queue is full" in answer["degrade_reason"] for answer in instead), "the flood did not fill the queue"
    counted = outcomes(app.url, replicas=1)
    assert counted["subject_shed"] + counted.get("subject_late", 0) == len(instead)
    assert counted.get("subject_error", 0) == 0
    assert {body["stage"] for body in statuses(app.url, replicas=1).values()} == {"serving"}


def model_pid() -> int:
    """Process id of a blue model replica."""
    handle = serve.get_deployment_handle("blue", APP_NAME)
    return int(handle.describe.remote().result(timeout_s=10.0)["pid"])


def kill_controller(home: Home) -> None:
    """SIGKILL to the rollout controller's process."""
    controller: Any = ray.get_actor(controller_name(home.root), namespace=NAMESPACE)
    status = ray.get(controller.status.remote(), timeout=10.0)
    os.kill(int(status["pid"]), signal.SIGKILL)


def test_a_killed_model_costs_no_caller_an_answer(app: Running) -> None:
    with Traffic(app.url, TEXTS) as traffic:
        wait_for(lambda: len(traffic.replies) > 60, within_s=20.0, what="warm traffic")
        os.kill(model_pid(), signal.SIGKILL)
        killed_s = time.monotonic()
        wait_for(
            lambda: sources(traffic.since(killed_s)) & {"gbdt", "rules"} != set(), within_s=10.0, what="the fallback"
        )
        wait_for(lambda: stages(app.url) == {"serving"}, within_s=BACK_S, what="the model's return")
        wait_for(lambda: "primary" in sources(traffic.replies[-20:]), within_s=30.0, what="the model's answers")
    assert traffic.lost() == []


def test_a_killed_controller_costs_nothing_and_a_new_one_goes_on(app: Running, serving_home: Home) -> None:
    with Traffic(app.url, TEXTS) as traffic:
        wait_for(lambda: len(traffic.replies) > 60, within_s=20.0, what="warm traffic")
        before = {body["epoch"] for body in statuses(app.url, replicas=2).values()}
        kill_controller(serving_home)
        killed_s = time.monotonic()
        wait_for(lambda: len(traffic.since(killed_s)) > 240, within_s=30.0, what="traffic without a controller")
        after = {body["epoch"] for body in statuses(app.url, replicas=2).values()}
    assert traffic.lost() == []
    assert before == after
    assert stages_of(traffic.since(killed_s)) == {"serving"}
    assert "primary" in sources(traffic.replies[-20:])


def test_operators_orders_need_the_token_and_reach_every_replica(app: Running, serving_home: Home) -> None:
    operator = {"Authorization": f"Bearer {serving_home.operator_token()}"}
    with httpx.Client(base_url=app.url, timeout=10.0) as client:
        for path in ("/v1/degrade", "/v1/restore"):
            assert client.post(path, json={"why": "drill"}).status_code == 401
        assert client.post("/v1/degrade", json={"why": "02:15"}, headers=operator).status_code == 200
        wait_for(lambda: stages(app.url) == {"degraded"}, within_s=2.0, what="the force on every replica")
        assert client.post("/v1/predict", json={"text": TEXTS[0]}).json()["source"] in {"gbdt", "rules"}
        assert client.post("/v1/restore", json={"why": "done"}, headers=operator).status_code == 200
    with Traffic(app.url, TEXTS) as traffic:
        wait_for(lambda: stages(app.url) == {"serving"}, within_s=BACK_S, what="the return after the force")
    assert traffic.lost() == []


def stages(url: str) -> set[str]:
    return {str(body["stage"]) for body in statuses(url, replicas=2).values()}
