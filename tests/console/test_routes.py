"""The page's routes: what needs a token, what a browser is allowed, and what looking costs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from failsoft.console import feed as feed_module
from failsoft.console.feed import Feed
from failsoft.console.routes import MAX_VIEWERS, Viewers
from failsoft.health.clock import SystemClock
from failsoft.health.ledger import Ledger, Side
from tests.console.made import TOKEN, Scene
from tests.incidents.made import Told


@pytest.fixture
def anyio_backend() -> str:
    """The event loop for tests marked ``anyio``."""
    return "asyncio"


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def viewers_of(scene: Scene) -> Viewers:
    feed = Feed(scene.home, status=scene.status, rollout=scene.rollout, clock=SystemClock())
    return Viewers(feed, every_s=0.01)


async def first(stream: AsyncIterator[str]) -> dict[str, Any]:
    async with asyncio.timeout(30.0):
        said = await anext(stream)
    body: dict[str, Any] = json.loads(said.removeprefix("data: "))
    return body


@pytest.mark.parametrize("path", ["/console", "/console/console.css", "/console/console.js"])
def test_the_page_may_ask_nobody_else_and_be_framed_by_nobody(scene: Scene, path: str) -> None:
    answer = TestClient(scene.app()).get(path)
    assert answer.status_code == 200
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "http://" not in answer.text.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in answer.text


@pytest.mark.parametrize("name", ["..%2froutes.py", "index.html", "%00", "console.js%00"])
def test_no_other_file_is_given(scene: Scene, name: str) -> None:
    assert TestClient(scene.app()).get(f"/console/{name}").status_code == 404


@pytest.mark.parametrize("token", [None, "Bearer wrong", f"Basic {TOKEN}"])
def test_the_ledger_is_for_operators(scene: Scene, token: str | None) -> None:
    headers = {"Authorization": token} if token else {}
    answer = TestClient(scene.app()).get("/v1/console/events", headers=headers)
    assert answer.status_code == 401
    assert TOKEN not in answer.text


def test_an_operator_finds_events_by_words_and_side(scene: Scene) -> None:
    for side, why in ((Side.SERVING, "weights were broken"), (Side.TRAINING, "a disk was full")):
        Ledger(scene.home.ledger, SystemClock(), side=side, subject="x").record("trip", why)
    http = TestClient(scene.app(), headers={"Authorization": f"Bearer {TOKEN}"})
    assert [one["why"] for one in http.get("/v1/console/events").json()["events"]] == [
        "a disk was full",
        "weights were broken",
    ]
    assert len(http.get("/v1/console/events?text=WEIGHTS").json()["events"]) == 1
    assert len(http.get("/v1/console/events?side=training").json()["events"]) == 1
    assert http.get("/v1/console/events?side=odd").status_code == 422
    assert http.get("/v1/console/events?text=" + "x" * 101).status_code == 422


@pytest.mark.anyio
async def test_all_who_look_share_one_look(scene: Scene) -> None:
    viewers = viewers_of(scene)
    streams = [viewers.watch() for _ in range(5)]
    said = [await first(stream) for stream in streams]
    assert {one["now"]["release"] for one in said} == {"r1"}
    assert viewers.count == 5
    looked = scene.looked
    assert looked < 5
    for stream in streams:
        await stream.aclose()  # type: ignore[attr-defined]
    assert viewers.count == 0
    async with asyncio.timeout(30.0):
        await viewers._task  # type: ignore[misc]
    assert scene.looked <= looked + 1, "nobody looks, so nothing is gathered"


@pytest.mark.anyio
async def test_whoever_comes_after_a_while_gets_no_old_news(scene: Scene) -> None:
    viewers = viewers_of(scene)
    stream = viewers.watch()
    await first(stream)
    await stream.aclose()  # type: ignore[attr-defined]
    await viewers._task  # type: ignore[misc]
    scene.plan["why"] = "another one"
    again = viewers.watch()
    assert "another one" in (await first(again))["now"]["why"]
    await again.aclose()  # type: ignore[attr-defined]


@pytest.mark.anyio
async def test_incidents_answers_and_an_absent_controller_are_shown(scene: Scene) -> None:
    told = Told(scene.home.root)
    told.clock.jump_wall(round(SystemClock().wall_s() - told.clock.wall_s()) - 60.0)
    told.whole_incident()
    scene.is_controller_away = True
    viewers = viewers_of(scene)
    stream = viewers.watch()
    body = await first(stream)
    await stream.aclose()  # type: ignore[attr-defined]
    assert [one["name"] for one in body["incidents"]] == ["incident-12"]
    assert body["incidents"][0]["replaced"] == "760 of 960 (79%)"
    assert {source for step in body["history"] for source in step["rates"]} == {"primary", "gbdt", "rules"}
    assert "controller is away" in body["now"]["why"]


@pytest.mark.anyio
async def test_a_controller_that_hangs_keeps_nobody_from_seeing_and_is_asked_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "_ROLLOUT_S", 0.01)
    asked, answers = 0, asyncio.Event()

    async def hang() -> dict[str, Any]:
        nonlocal asked
        asked += 1
        await answers.wait()
        return {"waits_for": "40 more answers"}

    feed = Feed(scene.home, status=scene.status, rollout=hang, clock=SystemClock())
    for _ in range(3):
        assert "controller is away (it has not answered yet)" in (await feed.look())["now"]["why"]
    assert asked == 1
    answers.set()
    await asyncio.sleep(0)
    monkeypatch.setattr(feed_module, "_ROLLOUT_S", 30.0)
    assert "It waits for: 40 more answers" in (await feed.look())["now"]["why"]


@pytest.mark.anyio
async def test_torn_lines_of_the_disk_break_no_look(scene: Scene) -> None:
    scene.home.serving.mkdir(parents=True)
    (scene.home.serving / "answers.jsonl").write_text(
        '{"v":1,"at_s":1,"answers":{"a":3}}\n{"v":1}\n[]\n{\n{"v":1,"at_s":1,"answers":{"a":{"b":"c"}}}\n'
    )
    scene.home.ledger.write_text('{"v":1}\nodd\n{"v":1,"at_s":')
    viewers = viewers_of(scene)
    stream = viewers.watch()
    assert (await first(stream))["incidents"] == []
    await stream.aclose()  # type: ignore[attr-defined]


@pytest.mark.anyio
async def test_strangers_who_take_all_places_keep_no_operator_out(scene: Scene) -> None:
    viewers = viewers_of(scene)
    strangers = [viewers.watch() for _ in range(MAX_VIEWERS)]
    for stream in strangers:
        await first(stream)
    operator = viewers.watch()
    assert (await first(operator))["now"]["release"] == "r1"
    assert viewers.count == MAX_VIEWERS
    with pytest.raises(StopAsyncIteration):
        await first(strangers[0])
    for stream in [operator, *strangers]:
        await stream.aclose()  # type: ignore[attr-defined]
    assert viewers.count == 0


@pytest.mark.anyio
async def test_a_stream_ends_by_itself_so_that_what_nobody_reads_cannot_pile_up(scene: Scene) -> None:
    feed = Feed(scene.home, status=scene.status, rollout=scene.rollout, clock=SystemClock())
    viewers = Viewers(feed, every_s=0.01, most_looks=3)
    assert len([said async for said in viewers.watch()]) == 3
    assert viewers.count == 0


@pytest.mark.anyio
async def test_an_error_while_looking_ends_the_streams_and_who_comes_again_sees(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    viewers, plan = viewers_of(scene), scene.plan
    scene.plan = {}
    streams = [viewers.watch() for _ in range(2)]
    for stream in streams:
        with pytest.raises(StopAsyncIteration):
            await first(stream)
        await asyncio.sleep(0)
    assert "the console stumbled" in caplog.text
    scene.plan = plan
    again = viewers.watch()
    assert (await first(again))["now"]["release"] == "r1"
    await again.aclose()  # type: ignore[attr-defined]
