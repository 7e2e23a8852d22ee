"""Whoever asks the controller while it can't be found: in words, one look at a time, and no duty ends by it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from failsoft import __version__
from failsoft.errors import ServingError
from failsoft.serving.rollout import controller as module
from failsoft.serving.rollout.controller import ControllerClient, ControllerConfig, start_controller

pytestmark = pytest.mark.anyio


@pytest.fixture
def config(tmp_path: Path) -> ControllerConfig:
    return ControllerConfig(home=str(tmp_path), release="r1", profile="drill")


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], None]:
    """Ray's way to the actor is what the test says."""
    return lambda way: monkeypatch.setattr(module, "_handle", lambda _config: way())


def replaced() -> Any:
    raise ValueError("Failed to look up actor 'failsoft-controller-1'")


async def test_a_controller_that_ended_while_it_was_looked_for_is_out_of_reach_in_words(
    config: ControllerConfig, found: Callable[[Callable[[], Any]], None]
) -> None:
    """Ray says ValueError: it ended the follower's duties without a word, and that replica never heard of a plan."""
    found(replaced)
    with pytest.raises(ServingError, match="Failed to look up actor"):
        await ControllerClient(config).status()
    with pytest.raises(ServingError, match="comes and goes"):
        module.find(config)


async def test_a_look_that_hangs_is_not_made_once_more_by_each_who_asks(
    config: ControllerConfig, found: Callable[[Callable[[], Any]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the head is away each took one more of the few threads in which this process reads its disks."""
    over, looks, told = threading.Event(), list[int](), asyncio.get_running_loop().create_future()
    told.set_result({"pid": 1})

    def hang() -> Any:
        looks.append(1)
        assert over.wait(30.0)
        return SimpleNamespace(status=SimpleNamespace(remote=lambda: told))

    found(hang)
    monkeypatch.setattr(module, "_CALL_S", 0.05)
    client = ControllerClient(config)
    for _ in range(3):
        with pytest.raises(ServingError, match="did not answer status"):
            await client._call("status", within_s=0.05)
    assert len(looks) == 1
    over.set()
    assert await client._call("status", within_s=30.0) == {"pid": 1}
    assert len(looks) == 1


def test_a_start_in_which_the_controller_of_the_version_before_comes_and_goes_looks_again(
    config: ControllerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = SimpleNamespace(remote=lambda *_: "asked")
    ways: list[Callable[[], Any]] = [replaced, lambda: SimpleNamespace(status=calls, adopt=calls)]
    monkeypatch.setattr(module, "_GONE_S", 0.0)
    monkeypatch.setattr(module, "_handle", lambda _config: (ways.pop(0) if len(ways) > 1 else ways[0])())
    monkeypatch.setattr(ray, "get", lambda _ref, timeout: {"version": __version__})
    start_controller(config)
    assert len(ways) == 1
