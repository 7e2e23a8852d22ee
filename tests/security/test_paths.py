"""A name that a caller gives leads to nothing outside the folder that it is a name in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from failsoft.artifacts.home import Home
from failsoft.cli.incidents import story_of
from failsoft.console.gates import Gates
from failsoft.console.routes import mount
from failsoft.errors import ConfigError, FailsoftError
from failsoft.health.clock import ManualClock
from failsoft.release.shelf import Pins
from failsoft.serving.web.auth import Guards
from failsoft.serving.web.mounting import Mounted
from tests.serving.web.test_routes import OPERATOR, FakeFront, client

pytestmark = pytest.mark.anyio
SECRET = "a-secret-beside-the-home"
ROADS = ["..", "../outside", "../../outside", "/etc", "a/../../outside", "..\\outside", "outside\0", ".", "", "~root"]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home with something beside it that nobody may read."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "manifest.json").write_text(SECRET)
    return Home(root=tmp_path / "home")


NAMED: dict[str, Callable[[Home, str], Any]] = {
    "a release that is opened": lambda home, name: home.releases(ManualClock()).open(name),
    "a release that is removed": lambda home, name: home.releases(ManualClock()).remove(name),
    "a checkpoint": lambda home, name: home.checkpoints("run", ManualClock()).open(name),
    "an incident": story_of,
}


@pytest.mark.parametrize("name", ROADS)
@pytest.mark.parametrize("what", NAMED)
def test_a_name_that_leads_elsewhere_is_refused(home: Home, what: str, name: str) -> None:
    with pytest.raises(FailsoftError) as refused:
        NAMED[what](home, name)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("name", [name for name in ROADS if name != "~root"])
def test_a_run_that_leads_elsewhere_is_refused(home: Home, name: str) -> None:
    with pytest.raises(ConfigError):
        home.run(name)


@pytest.mark.parametrize("name", ROADS)
def test_a_pin_of_any_name_is_one_line_in_one_file(home: Home, name: str) -> None:
    Pins(home).pin(name, "w")
    assert [path.name for path in home.root.iterdir() if not path.name.startswith(".")] == ["pins.json"]


@pytest.mark.parametrize("name", ROADS)
def test_a_plan_that_names_a_release_elsewhere_shows_nothing_of_it_on_the_console(home: Home, name: str) -> None:
    gates = Gates(home.root / "releases", ManualClock())
    gates.look([name])
    assert SECRET not in gates.of(name)


@pytest.mark.parametrize("road", ["..%2f..%2fetc%2fpasswd", "%2e%2e%2fconsole.css", "..%5c..", "console.css%00.js"])
async def test_the_console_gives_its_own_three_files_and_nothing_else(home: Home, road: str) -> None:
    async def rollout() -> dict[str, Any]:
        return {}

    def operator(_header: str | None) -> None:
        raise AssertionError

    app = FastAPI()
    mount(app, Mounted(home=home, status=dict, rollout=rollout, guards=Guards(operator=operator)))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://gateway") as http:
        answer = await http.get(f"/console/{road}")
        assert answer.status_code == 404
        assert "root:" not in answer.text


@pytest.mark.parametrize("road", ["..%2f..%2foutside", "%2e%2e", "a%2fb", "r%00"])
async def test_a_release_in_an_address_is_one_name(road: str) -> None:
    front = FakeFront()
    async with client(front) as http:
        await http.post(f"/v1/releases/{road}/propose", headers=OPERATOR)
    assert not any("/" in str(order[1]) for order in front.orders)
