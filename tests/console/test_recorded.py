"""Five incidents as they were recorded, on one screen of the console: what, since when, how many saw it, what to press.

The gateway, its monitor and the controller are the real ones; only the models are fakes. Needs Chromium.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.console.browser import WAIT_MS, Shown, chromium, needs_chromium
from tests.console.incidents_recorded import TROUBLES, Recorded, hit, recorded
from tests.console.recorded_report import assert_whole, listed, report_of

pytestmark = needs_chromium
playwright = pytest.importorskip("playwright.sync_api")
axe = pytest.importorskip("axe_playwright_python.sync_playwright")
expect = playwright.expect
_EXTENTS = """places => Object.fromEntries(places.map((place) => {
  const box = document.querySelector(place).getBoundingClientRect();
  return [place, [box.top, box.bottom]];
}))"""
SCREENS = {"desktop": (1280, 800), "phone": (390, 844)}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as play, chromium(play) as running:
        yield running


@pytest.mark.parametrize("name", TROUBLES)
def test_one_screen_says_what_happened_since_when_how_many_saw_it_and_what_to_press(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with recorded(name, tmp_path, monkeypatch) as there:
        for screen, (width, height) in SCREENS.items():
            context = browser.new_context(viewport={"width": width, "height": height})
            shown = Shown(context.new_page(), there.app.url)
            shown.open()
            facts = shown.page.locator("#happening article")
            expect(facts).to_have_count(1, timeout=WAIT_MS)
            assert_told(facts, shown.page, there, name)
            assert_on_screen(shown.page, height)
            shown.shoot(name if screen == "desktop" else f"{name}-{screen}", is_for_documents=screen == "desktop")
            assert_runbook(shown, TROUBLES[name].section)
            context.close()
        assert_reported(browser, there, name)


def assert_told(facts: Any, page: Any, there: Recorded, name: str) -> None:
    trouble, one = TROUBLES[name], there.incident
    said = facts.inner_text()
    for words in (trouble.what, trouble.press, trouble.saw, trouble.section, one.name, one.why):
        assert words.casefold() in said.casefold()
    assert (
        page.evaluate("at => new Date(at * 1000).toLocaleString(undefined, {timeZoneName: 'short'})", one.began_s)
        in said
    )
    assert ("first plan:" in said) == bool(one.release), "of a fall one sees whether the release is new"
    counted = re.search(r"([\d,]+) of [\d,]+ \(\d+%\) answers since (then|its first bad ones)", said)
    assert counted is not None
    assert 0 < int(counted[1].replace(",", "")) <= hit_at_most(there, trouble.why)


def hit_at_most(there: Recorded, why: str) -> int:
    """What was written down by now: the page can't have counted more; for a fall also what tripped it counts."""
    home = there.app.home
    return hit(home, why) + sum(hit(home, flaw) for flaw in ("weak", "late", "error") if why == "stage")


def assert_on_screen(page: Any, height: int) -> None:
    """Nobody has to scroll for who answers, and for all that is said of the incident.

    Measured within the page, at one moment: what is said of it is made anew while it goes on.
    """
    places = ["#glance", "#happening article", "#happening a"]
    for place, (top, end) in page.evaluate(_EXTENTS, places).items():
        assert top >= 0.0, place
        assert end <= height, f"{place} ends at {end:.0f} of {height}"
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def assert_runbook(shown: Shown, section: str) -> None:
    """The link leads to the section, from the gateway itself."""
    page = shown.page
    page.locator("#happening a").click()
    heading = page.locator(f"#{section.lower()}")
    expect(heading).to_have_text(section, timeout=WAIT_MS)
    expect(heading).to_be_in_viewport()
    assert all(url.startswith((shown.url, "data:")) for url in shown.asked)
    assert shown.errors == []


def assert_reported(browser: Any, there: Recorded, name: str) -> None:
    """``failsoft report`` has all of it, and can be read by everybody."""
    home, trouble = there.app.home, TROUBLES[name]
    page_file = report_of(home, there.incident.name)
    text = page_file.read_text("utf-8")
    assert trouble.what in text
    assert_whole(text, is_fall=trouble.why == "stage", broke=trouble.broke)
    (body,) = listed(home)
    assert (body["name"], body["kind"], body["hit"] > 0) == (there.incident.name, there.incident.kind, True)
    context = browser.new_context()
    page = context.new_page()
    page.goto(page_file.as_uri())
    found = axe.Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    context.close()
