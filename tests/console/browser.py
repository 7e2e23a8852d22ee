"""Chromium, and a page of the console in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = Path("/usr/bin/chromium")
SHOTS = Path(os.environ.get("FAILSOFT_PICTURES") or Path(__file__).parents[2] / "build" / "console")
"""Where screenshots go: ``FAILSOFT_PICTURES=docs/console`` makes those of the documents anew."""
WAIT_MS = 30_000
_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
needs_chromium = pytest.mark.skipif(
    not CHROMIUM.exists(), reason="no Chromium; Debian and Ubuntu: apt-get install chromium"
)


@contextmanager
def chromium(play: Any) -> Iterator[Any]:
    """The browser, by Playwright."""
    running = play.chromium.launch(executable_path=str(CHROMIUM), args=list(_FLAGS))
    try:
        yield running
    finally:
        running.close()


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
        from playwright.sync_api import expect

        self.page.goto(f"{self.url}/console")
        expect(self.page.locator("#fresh")).to_have_text("live", timeout=WAIT_MS)
        return self.page

    def shoot(self, name: str, **how: Any) -> None:
        """A screenshot that is kept."""
        SHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SHOTS / f"{name}.png", **how)
