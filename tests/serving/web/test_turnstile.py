"""Who is let in, and who is sent away."""

from __future__ import annotations

import pytest
from starlette.types import Message, Receive, Scope, Send

from failsoft.errors import ConfigError
from failsoft.serving.web.turnstile import Turnstile

pytestmark = pytest.mark.anyio


async def receive() -> Message:
    raise AssertionError("a turnstile reads nothing")


class Door:
    """A turnstile of one place, before an app that asks for the same path again while it is inside."""

    def __init__(self, *, raises: bool = False) -> None:
        self.turnstile = Turnstile(self.app, max_inside=1, counts="/v1/predict".__eq__)
        self.inside, self.statuses, self.raises = 0, list[int](), raises

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.inside += 1
        if self.inside == 1:
            await self.turnstile(scope, receive, send)
        if self.raises:
            raise OSError("inside")

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.statuses.append(message["status"])

    async def come(self, path: str, root: str = "") -> None:
        await self.turnstile({"type": "http", "path": path, "root_path": root}, receive, self.send)


@pytest.mark.parametrize(("path", "root"), [("/v1/predict", ""), ("/nlu/v1/predict", "/nlu")])
async def test_one_too_many_is_sent_away_wherever_the_app_is_mounted(path: str, root: str) -> None:
    door = Door()
    await door.come(path, root)
    assert (door.inside, door.statuses) == (1, [429])


async def test_another_path_is_not_counted() -> None:
    door = Door()
    await door.come("/v1/status")
    assert (door.inside, door.statuses) == (2, [])


async def test_a_place_is_free_again_whatever_happened_inside() -> None:
    door = Door(raises=True)
    for inside in (1, 1):
        door.inside = 0
        with pytest.raises(OSError, match="inside"):
            await door.come("/v1/predict")
        assert door.inside == inside


def test_a_gateway_that_lets_nobody_in_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_inside is 0"):
        Turnstile(Door().app, max_inside=0, counts=bool)
