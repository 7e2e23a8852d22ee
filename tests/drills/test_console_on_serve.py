"""The console of a real app on Ray Serve, in real Chromium: it shows answers live, an incident, and a gateway's death.

One gateway, so that its death leaves nobody who answers: the page has to come back by itself when Serve has a new one.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from failsoft.artifacts.home import Home
from failsoft.serving import ServeSettings, build_app
from tests.console.browser import Shown, chromium, needs_chromium
from tests.drills.serving_support import Traffic, free_port, statuses, wait_for
from tests.drills.test_own_model import FLATS, breakable
from tests.serving.own_world import example

pytestmark = [pytest.mark.drill, needs_chromium]
playwright = pytest.importorskip("playwright.sync_api", reason="drives the browser: pip install playwright")
expect = playwright.expect
SOON_MS, BACK_MS = 60_000, 180_000
_CHROMIUMS_OWN = "Failed to load resource"
"""What the browser itself notes of a request that found nobody; the page catches that and tries again."""


@dataclass(frozen=True, kw_only=True)
class App:
    """It answers at an address."""

    url: str
    home: Home

    def gateway(self) -> dict[str, Any]:
        """What the only one says of itself."""
        (said,) = statuses(self.url, replicas=1).values()
        return said


@pytest.fixture
def app(tmp_path: Path, ray_local: None) -> Iterator[App]:
    from ray import serve
    from ray.serve.config import HTTPOptions

    from failsoft.serving.rollout.controller import stop_controller

    there = example()
    there["publish"](tmp_path)
    settings = ServeSettings(home=tmp_path, profile="drill", gateways=1, allow_planned_faults=True)
    app = build_app(replace(there["config"], predictor=breakable(there["Prices"])), settings)
    port = free_port()
    serve.start(http_options=HTTPOptions(host="127.0.0.1", port=port))
    serve.run(app, name="own", route_prefix="/")
    yield App(url=f"http://127.0.0.1:{port}", home=Home.find(tmp_path))
    serve.shutdown()
    stop_controller(Home.find(tmp_path).root)


@pytest.fixture
def shown(app: App) -> Iterator[Shown]:
    with playwright.sync_playwright() as play, chromium(play) as browser:
        context = browser.new_context(viewport={"width": 1280, "height": 800})
        yield Shown(context.new_page(), app.url)
        context.close()


def test_the_console_shows_answers_an_incident_and_comes_back_after_its_gateways_death(app: App, shown: Shown) -> None:
    wait_for(lambda: not app.gateway()["starting"], within_s=60, what="a gateway that has found its models")
    with Traffic(app.url, FLATS, rate_hz=20.0, field_name="instance"):
        page = shown.open()
        expect(page.locator("#legend")).to_contain_text("primary", timeout=SOON_MS)
        expect(page.locator("#glance")).to_contain_text("answers everything", timeout=SOON_MS)
        told = fall(app, shown)
        die(app, shown)
        expect(page.locator("#happening article").first).to_contain_text(told, timeout=SOON_MS)
        order(app, shown)
        shown.shoot("on-serve")
    assert all(url.startswith((app.url, "data:")) for url in shown.asked), "it asked somebody else"
    assert [error for error in shown.errors if _CHROMIUMS_OWN not in error] == []


def fall(app: App, shown: Shown) -> str:
    """All weights of the model break; the name of the incident that the page tells of."""
    fault = app.home.faults / "broken_weights"
    fault.parent.mkdir(parents=True)
    fault.touch()
    page = shown.page
    facts = page.locator("#happening article")
    expect(facts).to_have_count(1, timeout=SOON_MS)
    expect(page.locator("#glance")).to_contain_text("is out of service", timeout=SOON_MS)
    expect(facts).to_contain_text("came from something else than it", timeout=SOON_MS)
    expect(facts).to_contain_text("Runbook: FailsoftDegraded", timeout=SOON_MS)
    expect(page.locator("#legend")).to_contain_text("by_size", timeout=SOON_MS)
    return str(page.evaluate("feed.happening[0].name"))


def die(app: App, shown: Shown) -> None:
    """SIGKILL to the gateway's process; nobody touches the page until another one feeds it."""
    before = app.gateway()
    assert shown.page.evaluate("feed.now.gateway") == before["gateway"]
    os.kill(int(before["pid"]), signal.SIGKILL)
    shown.page.wait_for_function("before => feed.now.gateway !== before", arg=before["gateway"], timeout=BACK_MS)
    expect(shown.page.locator("#fresh")).to_have_text("live", timeout=SOON_MS)


def order(app: App, shown: Shown) -> None:
    """An order by the page reaches the plan, through Serve, and is told on the page."""
    page = shown.page
    page.get_by_role("button", name="hold the model back").click()
    page.get_by_label("token", exact=True).fill(app.home.operator_token())
    page.get_by_role("button", name="do it").click()
    page.get_by_label("why").fill("looked at in the morning")
    page.get_by_role("button", name="do it").click()
    page.get_by_role("dialog").wait_for(state="hidden", timeout=SOON_MS)
    expect(page.locator("#happening article").first).to_contain_text("An operator holds", timeout=SOON_MS)
    assert app.gateway()["plan"]["forced"] is True
