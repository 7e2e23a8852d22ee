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
from tests.console.made import TOKEN, Scene, plan_body, served
from tests.incidents.made import Told

CHROMIUM = Path("/usr/bin/chromium")
SHOTS = Path(__file__).parents[2] / "build" / "console"
pytestmark = pytest.mark.skipif(
    not CHROMIUM.exists(), reason="no Chromium; Debian and Ubuntu: apt-get install chromium"
)
playwright = pytest.importorskip("playwright.sync_api")
axe = pytest.importorskip("axe_playwright_python.sync_playwright")
expect = playwright.expect
_WAIT_MS = 30_000
_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


class Orders:
    """Counts what the page orders."""

    def __init__(self, scene: Scene) -> None:
        self.app = scene.app()
        self.given: list[tuple[str, dict[str, Any] | None]] = []

        @self.app.post("/v1/{rest:path}")
        async def take(rest: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
            self.given.append((rest, body))
            return {"epoch": 8}


class Shown:
    """A page and what went wrong in it."""

    def __init__(self, page: Any, url: str) -> None:
        self.page, self.url = page, url
        self.errors: list[str] = []
        self.asked: list[str] = []
        page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self.asked.append(request.url))

    def open(self) -> Any:
        self.page.goto(f"{self.url}/console")
        expect(self.page.locator("#fresh")).to_have_text("live", timeout=_WAIT_MS)
        return self.page


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
    with playwright.sync_playwright() as play:
        running = play.chromium.launch(executable_path=str(CHROMIUM), args=list(_FLAGS))
        yield running
        running.close()


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
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / f"serving-{colours}-{width}.png", full_page=True)


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
    expect(page.locator("#ask-error")).to_contain_text("operator", timeout=_WAIT_MS)
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
    expect(page.locator("#ledger")).to_contain_text("onerror", timeout=_WAIT_MS)
    assert page.locator("#ledger img").count() == 0
    assert shown.errors == []


def test_a_gateway_that_is_away_is_said_and_comes_back_without_a_reload(browser: Any, scene: Scene) -> None:
    app = scene.app()
    context = browser.new_context()
    with served(app) as url:
        shown = Shown(context.new_page(), url)
        page = shown.open()
    expect(page.locator("#fresh")).to_contain_text("what you see is old", timeout=_WAIT_MS)
    scene.plan = plan_body(why="back again")
    port = int(url.rsplit(":", 1)[1])
    with served(scene.app(), port=port):
        expect(page.locator("#fresh")).to_have_text("live", timeout=_WAIT_MS)
        expect(page.locator("#why")).to_contain_text("back again", timeout=_WAIT_MS)
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
    expect(page.locator("#glance")).to_contain_text("r2", timeout=_WAIT_MS)
    page.get_by_label("why").fill("so")
    page.get_by_role("button", name="do it").click()
    page.get_by_role("dialog").wait_for(state="hidden")
    assert [given[0] for given in orders.given] == ["releases/r1/abort"]


def test_signs_that_turn_words_around_are_shown_in_their_code(shown: Shown, scene: Scene) -> None:
    scene.plan = plan_body(why="weak \u202egnp")
    expect(shown.open().locator("#why")).to_contain_text("weak \\u202egnp")


INCIDENTS = {
    "silent-garbage": ("degraded", "DEGRADED", "31 weak of 40 (confidence below 0.50)", "a rest of 60 s"),
    "hang": ("degraded", "DEGRADED", "20 calls in a row ended at the deadline", "a rest of 60 s"),
    "crash-loop": ("degraded", "DEGRADED", "the model's replicas fail: 12 of 12 calls", "a replica that is ready"),
    "overload": ("serving", "HEALTHY", "", "nothing: the subject serves"),
    "bad-input-wave": ("serving", "HEALTHY", "", "nothing: the subject serves"),
}


@pytest.mark.parametrize("name", INCIDENTS)
def test_one_screen_says_what_happened_since_when_how_many_saw_it_and_what_to_press(
    shown: Shown, scene: Scene, name: str
) -> None:
    stage, status, why, waits_for = INCIDENTS[name]
    told = Told(scene.home.root)
    told.clock.jump_wall(round(SystemClock().wall_s() - told.clock.wall_s()) - 20.0)
    if stage == "degraded":
        told.trip(why=why)
        told.plan("degraded", why)
        told.answers(15, gbdt=38, rules=2)
    elif name == "overload":
        told.event("controller_duty_failed", "429 to 120 callers in 10 s: more requests than the gateway holds")
    else:
        told.event("caller_apart", "caller 77 sends 64 % malformed texts; judged alone from now on")
    scene.plan = plan_body(stage=stage, share=0.0 if stage == "degraded" else 1.0, why=why)
    scene.health = {"status": status, "reason": why or "2 bad of 400", "not_armed": None}
    scene.waits_for = waits_for
    page = shown.open()
    with_token(page)
    text = page.locator("main").inner_text()
    assert why in text
    assert waits_for in text
    if stage == "degraded":
        assert "going on" in page.locator("#incidents").inner_text()
        assert "600 of 600 answers since then" in page.locator("#since").inner_text()
        assert page.get_by_role("button", name="roll back").is_enabled()
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / f"incident-{name}.png")
