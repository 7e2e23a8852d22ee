"""What the drill does inside Serve's own code, on that code and without a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from failsoft.artifacts.bundle import Bundle
from failsoft.artifacts.home import Home
from failsoft.drills.serving import hook
from failsoft.drills.serving.hook import Trouble
from failsoft.drills.serving.host import built
from failsoft.drills.serving.signs import Sign, Signs, Told
from failsoft.drills.serving.toy import CORNERS, PAYLOADS, SPEC, Corners, publish
from failsoft.errors import ConfigError
from failsoft.health.clock import SystemClock


@pytest.fixture
def replica(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Serve's wrapper of a user's callable with the drill around it, and a sign that its model speaks garbage."""
    from ray.serve._private.replica import UserCallableWrapper

    monkeypatch.setattr(UserCallableWrapper, "_call_func_or_gen", UserCallableWrapper._call_func_or_gen)
    signs = Signs(tmp_path)
    signs.raise_(Sign.GARBAGE, Told(deployments=("model",)))
    trouble = Trouble(signs)
    trouble._told = signs.read()
    hook._stand_around_calls(trouble)
    made: Any = object.__new__(UserCallableWrapper)
    made._deployment_id = SimpleNamespace(name="model")
    made._run_sync_methods_in_threadpool = False
    made._warned_about_sync_method_change = True
    return made


def test_what_a_handle_gets_of_the_named_deployment_is_garbage(replica: Any) -> None:
    result, _ = asyncio.run(
        replica._call_func_or_gen(lambda text: {"said": text}, args=("cat",), kwargs={}, is_streaming=False)
    )
    assert result == {"said": "tac"}
    replica._deployment_id = SimpleNamespace(name="gateway")
    result, _ = asyncio.run(
        replica._call_func_or_gen(lambda text: {"said": text}, args=("cat",), kwargs={}, is_streaming=False)
    )
    assert result == {"said": "cat"}


def test_what_an_asgi_app_sends_is_garbage_too(replica: Any) -> None:
    sent: list[Any] = []

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.body", "body": b'{"said": "cat"}'})

    async def send(message: Any) -> None:
        sent.append(message["body"].strip())

    asyncio.run(replica._call_func_or_gen(app, args=({}, None, send), kwargs={}, is_streaming=True))
    assert sent == [b'{"said":"tac"}']


def test_a_constructor_and_a_health_check_pass_as_in_a_model_that_is_only_ill(replica: Any) -> None:
    result, _ = asyncio.run(replica._call_func_or_gen(lambda: "healthy"))
    assert result == "healthy"


def strict(args: Mapping[str, Any]) -> Any:
    """A builder that knows no argument but one."""
    if set(args) != {"size"}:
        raise ValueError(f"unknown arguments {sorted(args)}")
    from tests.chaos.serving.bare_app import app

    return app


def broken(_args: Mapping[str, Any]) -> Any:
    """A builder with a bug."""
    raise RuntimeError("no such table")


def asked(name: str, home: Path, **arguments: str) -> dict[str, Any]:
    return {"app": f"tests.chaos.serving.{name}", "arguments": arguments, "home": str(home)}


def test_any_application_and_any_builder_is_taken_as_serve_run_takes_it(tmp_path: Path) -> None:
    from ray.serve import Application

    assert isinstance(built(asked("bare_app:app", tmp_path)), Application)
    assert isinstance(built(asked("test_on_ray_serve:strict", tmp_path, size="3")), Application)


def test_a_builder_of_failsofts_gets_the_drills_home_and_leave_to_be_broken(tmp_path: Path) -> None:
    application = built({"app": "failsoft.drills.serving.toy:app", "arguments": {}, "home": str(tmp_path)})
    config: Any = application._bound_deployment.init_args[0]
    assert (config.home, config.profile, config.allow_planned_faults) == (tmp_path, "drill", True)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("test_on_ray_serve:broken", "RuntimeError: no such table"),
        ("test_on_ray_serve:nothing", "can't be imported"),
        ("test_on_ray_serve:CORNERS", "builds no app"),
    ],
)
def test_what_is_no_app_is_refused_in_words(name: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=words):
        built(asked(name, tmp_path))


def test_a_home_without_a_release_is_refused_and_no_other_home_is_served(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no whole release"):
        built({"app": "serve_apps:app", "arguments": {}, "home": str(tmp_path / "empty")})


def test_the_small_app_is_right_until_its_weights_are_noise(tmp_path: Path) -> None:
    publish(tmp_path)
    publish(tmp_path)
    newest = Home.find(tmp_path).releases(SystemClock()).newest()
    assert newest is not None
    bundle = Bundle.of(newest)
    model = Corners.load(bundle)
    points = [tuple(payload["instance"]) for payload in PAYLOADS]
    right = [judged.label for judged in SPEC.kind.judge(model.predict(points), rows=4, measures=bundle.measures())]
    assert right == [CORNERS[3], CORNERS[2], CORNERS[1], CORNERS[0]]
    model.break_weights()
    ill = SPEC.kind.judge(model.predict(points), rows=4, measures=bundle.measures())
    assert not any(judged.usable for judged in ill)
