"""Reading the console where that needs a token."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from fastapi.testclient import TestClient

from failsoft.health.clock import ManualClock
from failsoft.serving.web.guess_limit import MOST_WRONG, GuessLimit
from failsoft.serving.web.mounting import CONSOLE, console_mounts
from tests.console.app_here import app_here
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
    assert console_mounts(is_shown=True) == (CONSOLE,)
    assert console_mounts(is_shown=False) == ()


def test_the_console_the_status_and_the_rollout_of_a_gateway_have_one_rule_and_probes_have_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the feed shows, the other two show: a door that is shut beside one that is open keeps nobody out."""
    monkeypatch.setenv("FAILSOFT_VIEWER_TOKEN", VIEWER)
    monkeypatch.setenv("FAILSOFT_TOKEN", TOKEN)
    with (
        app_here(tmp_path, monkeypatch, reader_token=True) as app,
        httpx.Client(base_url=app.url, timeout=30.0) as http,
    ):
        for path in ("/v1/status", "/v1/rollout", "/v1/console/reader"):
            assert http.get(path).status_code == 401, path
            assert http.get(path, headers={"Authorization": "Bearer wrong"}).status_code == 401, path
            for token in (VIEWER, TOKEN):
                assert http.get(path, headers={"Authorization": f"Bearer {token}"}).status_code == 200, path
        for path in ("/healthz", "/v2/health/live", "/v2/health/ready"):
            assert http.get(path).status_code == 200, path
        assert http.post("/v1/predict", json={"text": "please play some jazz"}).status_code == 200
        for order in ("/v1/degrade", "/v1/restore"):
            said = http.post(order, json={"why": "x"}, headers={"Authorization": f"Bearer {VIEWER}"})
            assert said.status_code == 401, "who reads may not order"
