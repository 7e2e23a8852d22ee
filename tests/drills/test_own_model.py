"""The own model of ``docs/own_model.py`` on real Ray Serve: broken, its own rungs answer; healed, it answers again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from failsoft.artifacts.home import Home
from failsoft.serving import ServeSettings, build_app
from tests.drills.serving_support import Traffic, free_port, sources, statuses, wait_for
from tests.serving.own_world import example

pytestmark = pytest.mark.drill
GATEWAYS = 2
FLATS = [[70.0, 3.0], [45.0, 2.0], [110.0, 4.0]]


def breakable(prices: type[Any]) -> type[Any]:
    """The example's model, with a planned fault: all its weights become NaN in memory."""

    class Breakable(prices):  # type: ignore[misc]  # a class of a script that is run by its path
        def break_weights(self) -> None:
            self.weights: Any = self.weights * float("nan")

    return Breakable


@pytest.fixture
def url(tmp_path: Path, ray_local: None) -> Iterator[str]:
    from ray import serve
    from ray.serve.config import HTTPOptions

    from failsoft.serving.rollout.controller import stop_controller

    there = example()
    there["publish"](tmp_path)
    settings = ServeSettings(home=tmp_path, profile="drill", gateways=GATEWAYS, allow_planned_faults=True)
    app = build_app(replace(there["config"], predictor=breakable(there["Prices"])), settings)
    port = free_port()
    serve.start(http_options=HTTPOptions(host="127.0.0.1", port=port))
    serve.run(app, name="own", route_prefix="/")
    yield f"http://127.0.0.1:{port}"
    serve.shutdown()
    stop_controller(Home.find(tmp_path).root)


def stages(url: str) -> set[str]:
    return {str(body["stage"]) for body in statuses(url, replicas=GATEWAYS).values()}


def test_an_own_model_gone_bad_is_replaced_by_its_own_rungs_and_comes_back(url: str, tmp_path: Path) -> None:
    fault = Home.find(tmp_path).faults / "broken_weights"
    fault.parent.mkdir(parents=True)
    wait_for(
        lambda: not any(body["starting"] for body in statuses(url, replicas=GATEWAYS).values()),
        within_s=60,
        what="found models",
    )
    with Traffic(url, FLATS, field_name="instance") as traffic:
        wait_for(lambda: len(traffic.replies) > 80, within_s=20, what="warm traffic")
        assert sources(traffic.replies[-40:]) == {"primary"}
        fault.touch()
        wait_for(lambda: stages(url) == {"degraded"}, within_s=10, what="every replica on the own rungs")
        while_broken = len(traffic.replies)
        wait_for(lambda: len(traffic.replies) > while_broken + 20, within_s=10, what="answers of the rungs")
        rung = traffic.replies[-1].body
        fault.unlink()
        wait_for(lambda: stages(url) == {"serving"}, within_s=90, what="the return to serving")
        returned = len(traffic.replies)
        wait_for(lambda: len(traffic.replies) > returned + 40, within_s=10, what="traffic after the return")
    assert traffic.lost() == []
    assert (rung["source"], rung["confidence"], rung["release"]) == ("by_size", None, None)
    assert rung["output"] in {4.0 * flat[0] for flat in FLATS}
    assert all(reply.body["output"] is not None for reply in traffic.replies), "nobody saw what is no number"
    after = [reply.body["source"] for reply in traffic.replies[returned:]]
    assert after.count("primary") > 0.8 * len(after), after
    status = httpx.get(f"{url}/v1/status", timeout=5.0).json()
    assert (status["torch_loaded"], status["health"]["not_armed"]) == (False, None)
