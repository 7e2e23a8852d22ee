"""Reading the console where that needs a token."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from failsoft.console.door import MOST_WRONG, WITHIN_S, Door
from failsoft.errors import ConfigError, NotAuthorizedError
from failsoft.health.clock import ManualClock
from failsoft.serving.settings import ServeSettings
from failsoft.serving.web.auth import viewer_guard
from failsoft.serving.web.mounting import CONSOLE, CONSOLE_WITH_TOKEN, console_mounts
from tests.console.made import TOKEN, Scene

VIEWER = "v" * 24


def door_of(clock: ManualClock) -> Door:
    return Door(viewer_guard(VIEWER, TOKEN), clock)


def wrong(door: Door, address: str, times: int = MOST_WRONG) -> None:
    for number in range(times):
        with pytest.raises(NotAuthorizedError, match="viewer-token"):
            door.check(f"Bearer guess{number}", address)


def test_either_token_opens_it_and_none_does_not() -> None:
    door = door_of(ManualClock())
    door.check(f"Bearer {VIEWER}", "a")
    door.check(f"bearer {TOKEN}", "a")
    for bad in (None, "Bearer ", f"Basic {VIEWER}", "Bearer \ud800"):
        with pytest.raises(NotAuthorizedError):
            door.check(bad, "a")


def test_an_address_that_guesses_is_not_heard_for_a_minute_and_the_others_are() -> None:
    clock = ManualClock()
    door = door_of(clock)
    wrong(door, "a")
    clock.advance(10.0)
    with pytest.raises(NotAuthorizedError, match="heard again in 50 s"):
        door.check(f"Bearer {VIEWER}", "a")
    door.check(f"Bearer {VIEWER}", "b")
    clock.advance(WITHIN_S - 10.0)
    door.check(f"Bearer {VIEWER}", "a")
    assert door.shut_s("a") == 0


def test_a_page_without_a_token_guesses_nothing() -> None:
    door = door_of(ManualClock())
    for _ in range(5 * MOST_WRONG):
        with pytest.raises(NotAuthorizedError):
            door.check(None, "a")
    door.check(f"Bearer {VIEWER}", "a")


def test_strangers_from_many_addresses_take_no_more_memory() -> None:
    door = door_of(ManualClock())
    for number in range(5000):
        wrong(door, f"address-{number}", times=1)
    assert len(door._wrong) == 4096


def test_a_door_that_nobody_could_pass_after_a_slip_is_refused() -> None:
    with pytest.raises(ConfigError, match="most_wrong"):
        Door(viewer_guard(VIEWER, TOKEN), ManualClock(), most_wrong=0)


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
    for _ in range(MOST_WRONG - 1):
        assert http.get("/v1/console/reader", headers={"Authorization": "Bearer no"}).status_code == 401
    assert http.get("/v1/console/reader", headers={"Authorization": "Bearer no"}).status_code == 429
    shut = http.get("/v1/console/reader", headers=viewer)
    assert shut.status_code == 429
    assert 0 < int(shut.headers["retry-after"]) <= WITHIN_S


def test_without_the_setting_nobody_needs_a_token(tmp_path: Path) -> None:
    http = TestClient(Scene(tmp_path).app())
    assert http.get("/v1/console/reader").status_code == 200
    assert "data-token" not in http.get("/console").text
    assert not (tmp_path / "viewer-token").exists()
    settings = ServeSettings()
    assert console_mounts(settings.console, needs_token=settings.console_token) == (CONSOLE,)
    assert console_mounts(True, needs_token=True) == (CONSOLE_WITH_TOKEN,)
    assert console_mounts(False, needs_token=True) == ()
