"""A model with one slot on real Ray Serve: a bad release is swapped out for the one kept in host memory."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from failsoft.artifacts.home import Home
from failsoft.health.clock import SystemClock
from failsoft.health.ledger import read_ledger
from failsoft.remote import GatewayClient
from failsoft.serving.replicas.host_shelf import HostShelf, memory_folder
from failsoft.serving.settings import ServeSettings
from serve_apps.runtime import Running, start
from tests.drills.serving_support import Traffic, free_port, sources, wait_for
from tests.serving.tiny_release import TEXTS, publish_tiny

pytestmark = pytest.mark.drill


@pytest.fixture
def running(serving_home: Home, ray_local: None) -> Iterator[Running]:
    settings = ServeSettings(home=serving_home.root, profile="drill", gateways=1, slots=1)
    app = start(settings, port=free_port())
    yield app
    app.stop()
    HostShelf(serving_home.releases(SystemClock()), memory_folder(serving_home.root), SystemClock()).forget()


def plan_of(url: str) -> dict[str, object]:
    return dict(httpx.get(f"{url}/v1/status", timeout=5.0).json()["plan"])


def test_a_bad_release_leaves_the_slot_and_the_old_one_comes_back_from_memory_without_a_lost_request(
    running: Running, serving_home: Home
) -> None:
    old = str(plan_of(running.url)["releases"]["blue"])  # type: ignore[index]
    memory = HostShelf(serving_home.releases(SystemClock()), memory_folder(serving_home.root), SystemClock())
    publish_tiny(serving_home, "second", previous=old)
    with (
        GatewayClient(running.url, token=serving_home.operator_token()) as client,
        Traffic(running.url, TEXTS) as traffic,
    ):
        wait_for(lambda: len(traffic.replies) > 40, within_s=20, what="traffic")
        wait_for(lambda: memory.kept() == [old], within_s=20, what="the served release in host memory")
        client.propose("second")
        wait_for(lambda: plan_of(running.url)["stage"] == "canary", within_s=60, what="the new release on its way")
        client.steer("second", "abort", why="drill", by="drill")
        wait_for(lambda: plan_of(running.url)["stage"] == "serving", within_s=90, what="the old release in service")
        wait_for(lambda: traffic.replies[-1].body["stage"] == "serving", within_s=10, what="its answers")
        served = len(traffic.replies)
        wait_for(lambda: len(traffic.replies) > served + 40, within_s=10, what="more of them")
        shown = client.rollout()
    assert traffic.lost() == []
    assert sources(traffic.replies[served:]) == {"primary"}
    assert {str(reply.body["release"]) for reply in traffic.replies[served:]} == {old}
    swaps = [event.why for event in read_ledger(serving_home.ledger).events if event.kind == "release_swapped"]
    print("swaps:", swaps)
    assert f"{old} was read from host memory" in swaps[-1]
    assert shown["slots"] == 1
    assert [held["swap"] for held in shown["models"].values()] == [swaps[-1]]
