"""One tenant's bad wave on real Ray Serve: the others keep the model, and nothing falls."""

from __future__ import annotations

import random
import string
import time
from collections.abc import Iterator

import httpx
import pytest

from failsoft.artifacts.home import Home
from failsoft.health.ledger import read_ledger
from serve_apps.intent_ner import ServeSettings
from serve_apps.runtime import Running, start
from tests.drills.serving_support import free_port, statuses
from tests.serving.tiny_release import TEXTS

pytestmark = pytest.mark.drill
SECONDS = 20.0
CALLERS = 9


@pytest.fixture
def running(serving_home: Home, ray_local: None) -> Iterator[Running]:
    app = start(ServeSettings(home=serving_home.root, profile="drill", gateways=1), port=free_port())
    yield app
    app.stop()


def gibberish(rng: random.Random) -> str:
    return " ".join("".join(rng.choices(string.ascii_lowercase, k=9)) for _ in range(rng.randint(2, 9)))


def test_half_of_the_traffic_is_one_tenants_garbage_and_the_others_keep_the_model(
    running: Running, serving_home: Home
) -> None:
    rng, texts = random.Random(3), list(TEXTS)
    others: list[dict[str, object]] = []
    noisy: list[dict[str, object]] = []
    with httpx.Client(base_url=running.url, timeout=20.0) as client:
        began_s = time.monotonic()
        while time.monotonic() - began_s < SECONDS:
            mine = {"X-Caller-Id": f"tenant-{rng.randrange(CALLERS)}"}
            others.append(client.post("/v1/predict", json={"text": rng.choice(texts)}, headers=mine).json())
            garbage = {"X-Caller-Id": "tenant-noisy"}
            noisy.append(client.post("/v1/predict", json={"text": gibberish(rng)}, headers=garbage).json())
    ((_, status),) = statuses(running.url, replicas=1).items()
    weak = [answer for answer in noisy if answer["degrade_reason"]]
    primary = [answer for answer in others if answer["source"] == "primary"]
    print(f"{len(noisy)} of garbage, {len(weak)} not by the model; {len(primary)} of {len(others)} others by it")
    print(status["health"])
    assert len(weak) > 0.3 * len(noisy), "the wave must be bad, or nothing is proven"
    assert len(primary) > 0.95 * len(others)
    assert {answer["stage"] for answer in others} == {"serving"}
    assert len(status["health"]["signals"]["callers_apart"]) == 1
    kinds = [event.kind for event in read_ledger(serving_home.ledger).events]
    assert "gateway_tripped" not in kinds
