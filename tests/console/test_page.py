"""The page in a real browser: nothing from elsewhere, nothing to the console of errors, usable by key and on a phone.

Needs Chromium at ``/usr/bin/chromium`` (Debian's package) and skips without it. Screenshots go to ``build/console``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from failsoft.health.clock import SystemClock
from tests.console.browser import WAIT_MS, Shown, chromium, needs_chromium
from tests.console.made import TOKEN, Scene, plan_body, served
from tests.incidents.made import Told

pytestmark = needs_chromium
playwright = pytest.importorskip("playwright.sync_api")
axe = pytest.importorskip("axe_playwright_python.sync_playwright")
expect = playwright.expect


class Orders:
    """Counts what the page orders."""

    def __init__(self, scene: Scene) -> None:
        self.app = scene.app()
        self.given: list[tuple[str, dict[str, Any] | None]] = []

        @self.app.post("/v1/{rest:path}")
        async def take(rest: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
            self.given.append((rest, body))
            return {"epoch": 8}


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    told = Told(tmp_path)
    told.clock.jump_wall(round(SystemClock().wall_s() - told.clock.wall_s()) - 400.0)
    told.whole_incident()
    return Scene(tmp_path)


@pytest.fixture
def orders(scene: Scene) -> Orders:
    return Orders(scene)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as play, chromium(play) as running:
        yield running


@pytest.fixture
def shown(browser: Any, orders: Orders) -> Iterator[Shown]:
    with served(orders.app) as url:
        context = browser.new_context(viewport={"width": 1280, "height": 1000})
        yield Shown(context.new_page(), url)
        context.close()


def with_token(page: Any) -> None:
    page.get_by_role("button", name="operator token").click()
    page.get_by_label("token", exact=True).fill(TOKEN)
    page.get_by_role("button", name="do it").click()
    page.get_by_role("dialog").wait_for(state="hidden")


def test_all_of_it_comes_from_the_gateway_and_nothing_goes_wrong(shown: Shown) -> None:
    page = shown.open()
    assert page.locator("#glance").inner_text().startswith("r1 answers everything.")
    assert page.locator("#stages [aria-current]").inner_text() == "serving"
    assert "incident-12" in page.locator("#incidents").inner_text()
    assert page.locator("#chart rect").count() > 10
    assert page.locator("#window rect.bad").count() > 3
    assert page.locator("#window .limit").count() == 1
    assert "2 bad of 90; it trips at 20 %" in page.locator("#window-words").inner_text()
    assert "incident-12" in page.locator("#chart .band title").first.text_content()
    assert all(url.startswith((shown.url, "data:")) for url in shown.asked)
    assert shown.errors == []


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 380])
def test_it_can_be_read_by_everybody_in_the_dark_and_on_a_phone(shown: Shown, colours: Any, width: int) -> None:
    page = shown.page
    page.emulate_media(color_scheme=colours)
    page.set_viewport_size({"width": width, "height": 900})
    shown.open()
    found = axe.Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    shown.shoot(f"serving-{colours}-{width}", full_page=True)


def test_the_runbook_can_be_read_by_everybody(shown: Shown) -> None:
    shown.page.goto(f"{shown.url}/console/runbook#failsoftoverload")
    expect(shown.page.get_by_role("heading", name="FailsoftOverload")).to_be_in_viewport()
    found = axe.Axe().run(shown.page)
    assert found.violations_count == 0, found.generate_report()
    assert shown.errors == []


def test_an_order_needs_the_token_a_reason_and_a_yes(shown: Shown, orders: Orders) -> None:
    page = shown.open()
    page.get_by_role("button", name="hold the model back").click()
    assert page.get_by_role("heading", name="Operator token").is_visible(), "first who it is"
    page.get_by_label("token", exact=True).fill(TOKEN)
    page.get_by_role("button", name="do it").click()
    page.get_by_role("heading", name="Hold the model back for everyone?").wait_for()
    page.get_by_role("button", name="do it").click()
    assert orders.given == [], "no reason, no order"
    page.get_by_label("why").fill("02:15")
    page.get_by_role("textbox", name=re.compile("minutes")).fill("30")
    page.get_by_role("button", name="do it").click()
    page.get_by_role("dialog").wait_for(state="hidden")
    assert orders.given == [("degrade", {"why": "02:15", "for_s": 1800, "by": "console"})]
    page.get_by_role("button", name="let it return").click()
    page.get_by_role("button", name="cancel").click()
    assert len(orders.given) == 1


@pytest.mark.parametrize(
    ("button", "fill", "route"),
    [
        ("let it return", {"why": "mended"}, "restore"),
        ("promote a release", {"release": "r2"}, "releases/r2/propose"),
        ("hold in this stage", {"why": "so"}, "releases/r1/hold"),
        ("go on by itself", {"why": "so"}, "releases/r1/resume"),
        ("next stage", {"why": "so"}, "releases/r1/advance"),
        ("roll back", {"why": "so"}, "releases/r1/abort"),
    ],
)
def test_each_button_is_its_route(shown: Shown, orders: Orders, button: str, fill: dict[str, str], route: str) -> None:
    page = shown.open()
    with_token(page)
    page.get_by_role("button", name=button).click()
    for label, value in fill.items():
        page.get_by_role("textbox", name=re.compile(label)).fill(value)
    page.get_by_role("button", name="do it").click()
    page.get_by_role("dialog").wait_for(state="hidden")
    assert [given[0] for given in orders.given] == [route]


def test_a_wrong_token_is_said_and_forgotten(shown: Shown) -> None:
    page = shown.open()
    page.get_by_role("button", name="operator token").click()
    page.get_by_label("token", exact=True).fill("wrong")
    page.get_by_role("button", name="do it").click()
    expect(page.locator("#ask-error")).to_contain_text("operator", timeout=WAIT_MS)
    assert page.evaluate("sessionStorage.getItem('token')") is None


def test_it_is_worked_by_keys_alone(shown: Shown) -> None:
    page = shown.open()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.get_by_role("heading", name="Operator token").is_visible()
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="hidden")


def test_the_ledger_is_searched_and_what_it_holds_is_text(shown: Shown, scene: Scene) -> None:
    told = Told(scene.home.root)
    told.event("trial_held", "<img src=x onerror=alert(1)>")
    page = shown.open()
    with_token(page)
    page.get_by_label("words").fill("onerror")
    page.get_by_role("button", name="search").click()
    expect(page.locator("#ledger")).to_contain_text("onerror", timeout=WAIT_MS)
    assert page.locator("#ledger img").count() == 0
    assert shown.errors == []


def test_a_gateway_that_is_away_is_said_and_comes_back_without_a_reload(browser: Any, scene: Scene) -> None:
    app = scene.app()
    context = browser.new_context()
    with served(app) as url:
        shown = Shown(context.new_page(), url)
        page = shown.open()
    expect(page.locator("#fresh")).to_contain_text("what you see is old", timeout=WAIT_MS)
    scene.plan = plan_body(why="back again")
    port = int(url.rsplit(":", 1)[1])
    with served(scene.app(), port=port):
        expect(page.locator("#fresh")).to_have_text("live", timeout=WAIT_MS)
        expect(page.locator("#why")).to_contain_text("back again", timeout=WAIT_MS)
        context.close()


def test_a_time_that_is_no_number_is_no_order_and_none_without_end(shown: Shown, orders: Orders) -> None:
    page = shown.open()
    with_token(page)
    page.get_by_role("button", name="hold the model back").click()
    page.get_by_label("why").fill("02:15")
    page.get_by_role("textbox", name=re.compile("minutes")).fill("30m")
    page.get_by_role("button", name="do it").click()
    assert page.get_by_role("dialog").is_visible()
    assert orders.given == []
    page.get_by_role("textbox", name=re.compile("minutes")).fill("1.5")
    page.get_by_role("button", name="do it").click()
    page.get_by_role("dialog").wait_for(state="hidden")
    assert orders.given == [("degrade", {"why": "02:15", "for_s": 90, "by": "console"})]


def test_the_enter_key_orders_and_does_not_cancel(shown: Shown, orders: Orders) -> None:
    page = shown.open()
    with_token(page)
    page.get_by_role("button", name="let it return").click()
    page.get_by_label("why").fill("mended")
    page.keyboard.press("Enter")
    page.get_by_role("dialog").wait_for(state="hidden")
    assert [given[0] for given in orders.given] == ["restore"]


def test_an_order_is_about_the_release_that_was_shown_when_it_was_asked(
    shown: Shown, orders: Orders, scene: Scene
) -> None:
    page = shown.open()
    with_token(page)
    page.get_by_role("button", name="roll back").click()
    expect(page.locator("#ask-text")).to_contain_text("r1")
    scene.plan = plan_body(releases={"blue": "r2", "green": "r1"})
    expect(page.locator("#glance")).to_contain_text("r2", timeout=WAIT_MS)
    page.get_by_label("why").fill("so")
    page.get_by_role("button", name="do it").click()
    page.get_by_role("dialog").wait_for(state="hidden")
    assert [given[0] for given in orders.given] == ["releases/r1/abort"]


def test_a_step_is_from_the_stage_that_was_shown_when_it_was_asked(shown: Shown, orders: Orders, scene: Scene) -> None:
    scene.plan = plan_body(stage="canary", share=0.05)
    page = shown.open()
    expect(page.locator("#stages [aria-current]")).to_have_text("canary", timeout=WAIT_MS)
    with_token(page)
    page.get_by_role("button", name="next stage").click()
    scene.plan = plan_body(stage="ramp_20", share=0.2)
    expect(page.locator("#stages [aria-current]")).to_have_text("ramp_20", timeout=WAIT_MS)
    page.get_by_label("why").fill("looked at it")
    page.get_by_role("button", name="do it").click()
    page.get_by_role("dialog").wait_for(state="hidden")
    wanted = {"why": "looked at it", "from_stage": "canary", "by": "console"}
    assert orders.given == [("releases/r1/advance", wanted)]


def test_signs_that_turn_words_around_are_shown_in_their_code(shown: Shown, scene: Scene) -> None:
    scene.plan = plan_body(why="weak \u202egnp")
    expect(shown.open().locator("#why")).to_contain_text("weak \\u202egnp")


def test_where_looking_needs_a_token_the_page_asks_for_it_and_shows_nothing_before(
    browser: Any, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    viewer = "v" * 24
    monkeypatch.setenv("FAILSOFT_VIEWER_TOKEN", viewer)
    monkeypatch.setenv("FAILSOFT_TOKEN", TOKEN)
    context = browser.new_context()
    with served(scene.app(needs_token=True)) as url:
        page = context.new_page()
        shown = Shown(page, url)
        page.goto(f"{url}/console")
        expect(page.get_by_role("heading", name="Token")).to_be_visible(timeout=WAIT_MS)
        expect(page.locator("#fresh")).to_have_text("a token is needed to look", timeout=WAIT_MS)
        assert page.locator("#glance").inner_text() == "nothing heard yet"
        assert not any("/v1/" in asked for asked in shown.asked)
        assert shown.errors == []
        page.get_by_label("token", exact=True).fill("wrong")
        page.get_by_role("button", name="do it").click()
        expect(page.locator("#ask-error")).to_contain_text("viewer-token", timeout=WAIT_MS)
        page.get_by_label("token", exact=True).fill(viewer)
        page.get_by_role("button", name="do it").click()
        expect(page.locator("#fresh")).to_have_text("live", timeout=WAIT_MS)
        page.reload()
        expect(page.locator("#fresh")).to_have_text("live", timeout=WAIT_MS)
        context.close()
