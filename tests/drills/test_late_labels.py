"""A release that is wrong and sure of it, on real Ray Serve: labels that come late, to any gateway, end its service."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from failsoft.artifacts.home import Home
from failsoft.health.ledger import read_ledger
from failsoft.remote import GatewayClient
from serve_apps.intent_ner import ServeSettings
from serve_apps.runtime import Running, start
from tests.drills.serving_support import Reply, Traffic, free_port, statuses, wait_for
from tests.serving.tiny_release import TEXTS, publish_tiny

pytestmark = pytest.mark.drill
GATEWAYS = 2


@pytest.fixture
def running(serving_home: Home, ray_local: None) -> Iterator[Running]:
    app = start(ServeSettings(home=serving_home.root, profile="drill", gateways=GATEWAYS), port=free_port())
    yield app
    app.stop()


class Labeller:
    """Somebody who knows the truth, and tells it some time after the answers were given."""

    def __init__(self, running: Running, home: Home, truth: dict[str, str]) -> None:
        self._http = httpx.Client(
            base_url=running.url, headers={"Authorization": f"Bearer {home.label_token()}"}, timeout=10.0
        )
        self._truth = truth

    def label(self, replies: list[Reply]) -> dict[str, int]:
        labels = [{"request_id": one.body["request_id"], "label": self._truth[one.text]} for one in replies]
        answer = self._http.post("/v1/labels", json={"labels": labels})
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def close(self) -> None:
        self._http.close()


def label_until_left(labeller: Labeller, given: list[Reply], url: str) -> int:
    """How many labels were sent, five at a time."""
    for first in range(0, len(given), 5):
        labeller.label(given[first : first + 5])
        if "serving" not in stages(url):
            break
    labeller.close()
    return first + 5


def stages(url: str) -> set[str]:
    return {str(body["stage"]) for body in statuses(url, replicas=GATEWAYS).values()}


def late_labels(url: str) -> dict[str, int]:
    """Ends of labels over all gateways."""
    ends: dict[str, int] = {}
    for body in statuses(url, replicas=GATEWAYS).values():
        for end, count in body["late_labels"].items():
            ends[end] = ends.get(end, 0) + count
    return ends


def test_a_release_whose_names_are_wrong_serves_until_labels_come_and_is_left_everywhere(
    running: Running, serving_home: Home
) -> None:
    publish_tiny(serving_home, "mislabelled", previous="tiny", mislabelled=True)
    client = GatewayClient(running.url, token=serving_home.operator_token())
    with client, Traffic(running.url, TEXTS) as traffic:
        wait_for(lambda: len(traffic.replies) > 60, within_s=20, what="warm traffic")
        truth = {one.text: str(one.body["intent"]) for one in traffic.replies if one.body["source"] == "primary"}
        client.propose("mislabelled")
        wait_for(lambda: serves(client, "mislabelled"), within_s=120, what="the mislabelled release in service")
        began = len(traffic.replies)
        wait_for(lambda: len(traffic.replies) > began + 80, within_s=20, what="its answers")
        given = [one for one in traffic.replies[began:] if one.body["release"] == "mislabelled"]
        told_s = time.monotonic()
        sent = label_until_left(Labeller(running, serving_home, truth), given, running.url)
        wait_for(lambda: stages(running.url) == {"degraded"}, within_s=10, what="every replica off it")
        switched_s = time.monotonic() - told_s
        left_s = time.monotonic()
        wait_for(lambda: len(traffic.since(left_s)) > 20, within_s=10, what="answers of what stands in")
        ends = late_labels(running.url)
    print(f"left after {sent} labels and {switched_s:.2f} s; labels over both gateways: {ends}")
    after = Counter((one.body["source"], one.body["intent"] == truth[one.text]) for one in traffic.since(left_s))
    print(f"answers after that, and whether they are right: {dict(after)}")
    assert traffic.lost() == []
    sure = [one.body["confidence"] for one in given]
    assert all(one.body["intent"] != truth[one.text] for one in given), "it was always wrong"
    assert sorted(sure)[len(sure) // 2] > 0.8, "and sure of it"
    assert sent <= 60
    assert ends["handed_on"] > 0, "some labels came to the gateway that had not given the answer"
    why = [event.why for event in read_ledger(serving_home.ledger).events if event.kind == "stage_move"]
    assert any("SERVING" in one and "with a late label" in one for one in why), why


def serves(client: GatewayClient, release: str) -> bool:
    plan: dict[str, Any] = client.rollout()["plan"]
    return bool(plan["stage"] == "serving" and plan["releases"][plan["subject"]] == release)
