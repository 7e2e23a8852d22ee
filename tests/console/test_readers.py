"""Reading the console where that needs a token."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from failsoft.health.clock import ManualClock
from failsoft.serving.settings import ServeSettings
from failsoft.serving.web.guess_limit import MOST_WRONG, GuessLimit
from failsoft.serving.web.mounting import CONSOLE, CONSOLE_WITH_TOKEN, console_mounts
from tests.console.made import TOKEN, Scene

VIEWER = "v" * 32


def test_the_feed_is_shut_and_the_page_and_the_runbook_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAILSOFT_VIEWER_TOKEN", VIEWER)
    monkeypatch.setenv("FAILSOFT_TOKEN", TOKEN)
    http = TestClient(Scene(tmp_path).app(needs_token=True))
    assert 'data-token="needed"' in http.get("/console").text
    assert http.get("/console/runbook").status_code == 200
    for path in ("/v1/console/live", "/v1/console/reader"):
        refused = http.get(path)
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"] == "Bearer"
    viewer = {"Authorization": f"Bearer {VIEWER}"}
    assert http.get("/v1/console/reader", headers=viewer).json() == {"may_read": True}
    assert http.get("/v1/console/events", headers=viewer).status_code == 401, "to look is not to search"


@pytest.mark.parametrize("bad", ["Bearer ", f"Basic {VIEWER}", f"Bearer {VIEWER}x", VIEWER])
def test_nothing_but_a_whole_token_opens_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: str) -> None:
    monkeypatch.setenv("FAILSOFT_VIEWER_TOKEN", VIEWER)
    http = TestClient(Scene(tmp_path).app(needs_token=True))
    for path in ("/v1/console/live", "/v1/console/live/", "/v1/console/reader", "/v1/console/%6cive"):
        assert http.get(path, headers={"Authorization": bad}).status_code == 401, path


def test_strangers_who_guess_through_the_same_proxy_keep_no_reader_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At night it is the reader who counts: their own address is the proxy's, as the strangers' is."""
    monkeypatch.setenv("FAILSOFT_VIEWER_TOKEN", VIEWER)
    http = TestClient(GuessLimit(Scene(tmp_path).app(needs_token=True), ManualClock()))
    said = [
        http.get("/v1/console/reader", headers={"Authorization": f"Bearer guess-{number}"}).status_code
        for number in range(MOST_WRONG + 1)
    ]
    assert said == [401] * MOST_WRONG + [429]
    assert http.get("/v1/console/reader", headers={"Authorization": f"Bearer {VIEWER}"}).status_code == 200


def test_without_the_setting_nobody_needs_a_token(tmp_path: Path) -> None:
    http = TestClient(Scene(tmp_path).app())
    assert http.get("/v1/console/reader").status_code == 200
    assert "data-token" not in http.get("/console").text
    assert not (tmp_path / "viewer-token").exists()
    settings = ServeSettings()
    assert console_mounts(settings.console, needs_token=settings.console_token) == (CONSOLE,)
    assert console_mounts(True, needs_token=True) == (CONSOLE_WITH_TOKEN,)
    assert console_mounts(False, needs_token=True) == ()
