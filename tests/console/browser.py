"""Chromium, and a page of the console in it."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

CHROMIUM = Path("/usr/bin/chromium")
SHOTS = Path(__file__).parents[2] / "build" / "console"
"""Where screenshots go."""
PICTURES = os.environ.get("FAILSOFT_PICTURES")
"""Where those for the documents go, too: ``FAILSOFT_PICTURES=docs/console make test ARGS="-k recorded"``."""
_COLOURS = 128
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

    def shoot(self, name: str, *, is_for_documents: bool = False, **how: Any) -> None:
        """A screenshot that is kept; one of few colours is a third as large."""
        taken = (
            Image.open(io.BytesIO(self.page.screenshot(**how)))
            .convert("RGB")
            .quantize(_COLOURS, Image.Quantize.MAXCOVERAGE)
        )
        for folder in [SHOTS, *([Path(PICTURES)] if PICTURES and is_for_documents else [])]:
            folder.mkdir(parents=True, exist_ok=True)
            taken.save(folder / f"{name}.png", optimize=True)
