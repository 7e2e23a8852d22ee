"""``build_app`` refuses in words what could not be served, before anything starts. No Ray runs here."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ray.serve import Application

from failsoft.errors import ArtifactMissingError, ConfigError
from failsoft.serving import FunctionRung, ServeSettings, build_app
from failsoft.serving.task import AppSpec, app_named
from tests.serving.own_world import example


@pytest.fixture
def config(tmp_path: Path) -> AppSpec:
    there = example()
    there["publish"](tmp_path)
    found: AppSpec = there["config"]
    return found


def deployments(app: Application) -> dict[str, Any]:
    """The gateway's deployment and those that it is bound to, by name."""
    gateway: Any = app._bound_deployment
    inner = [argument._bound_deployment for argument in gateway.init_args if isinstance(argument, Application)]
    return {deployment.name: deployment for deployment in (gateway, *inner)}


def test_an_app_is_a_gateway_two_models_and_a_fallback(config: AppSpec, tmp_path: Path) -> None:
    found = deployments(build_app(config, {"home": tmp_path, "gateways": 3}))
    assert sorted(found) == ["blue", "fallback", "gateway", "green"]
    assert (found["gateway"].num_replicas, found["blue"].num_replicas) == (3, 1)


def test_models_get_the_resources_that_they_ask_for_and_gateways_do_not(config: AppSpec, tmp_path: Path) -> None:
    settings = ServeSettings(home=tmp_path)
    found = deployments(build_app(replace(config, resources={"num_gpus": 1, "num_cpus": 2}), settings))
    assert found["green"].ray_actor_options["num_gpus"] == 1
    assert "num_gpus" not in found["gateway"].ray_actor_options


def test_the_gateway_is_not_given_the_predictor(config: AppSpec, tmp_path: Path) -> None:
    """What the predictor's module imports, torch for one, must stay out of the gateway's process."""
    gateway = deployments(build_app(config, {"home": tmp_path}))["gateway"]
    assert not hasattr(gateway.init_args[0].task, "predictor")


def guesses(_bundle: Any) -> list[FunctionRung]:
    return [FunctionRung("by_size", lambda flat: flat[0])]


def test_an_app_without_a_last_resort_is_refused(config: AppSpec, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the last rung \(by_size\) raised on None"):
        build_app(replace(config, rungs=guesses), {"home": tmp_path})


def test_an_app_without_a_release_is_refused_with_both_ways_to_one(config: AppSpec, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no whole release in .*failsoft train .*publish_own"):
        build_app(config, {"home": tmp_path / "empty"})
    with pytest.raises(ArtifactMissingError, match="r-absent"):
        build_app(config, {"home": tmp_path, "release": "r-absent"})


def test_unknown_settings_kinds_and_rungs_are_refused(config: AppSpec, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="gatewyas"):
        build_app(config, {"home": tmp_path, "gatewyas": 2})
    with pytest.raises(ConfigError, match="no quality kind 'regression'"):
        replace(config, quality="regression")
    with pytest.raises(ConfigError, match="rungs are 7; give a function"):
        replace(config, rungs=7)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(ConfigError, match="'x' is no rung; it needs a name"):
        build_app(replace(config, rungs=lambda _bundle: ["x"]), {"home": tmp_path})  # type: ignore[list-item]


def test_stages_that_can_not_be_meant_are_refused_before_anything_starts(config: AppSpec, tmp_path: Path) -> None:
    (tmp_path / "stages.toml").write_text("[production.canary]\nshare = 20", "utf-8")
    with pytest.raises(ConfigError, match=r"in \[production\.canary\] share is 20"):
        build_app(config, ServeSettings(home=tmp_path))


def test_an_app_is_found_by_its_path() -> None:
    assert app_named("serve_apps.intent_ner:SPEC").answers.field == "intent"
    with pytest.raises(ConfigError, match="APP_NAME is a str; name an AppSpec"):
        app_named("serve_apps.intent_ner:APP_NAME")
    with pytest.raises(ConfigError, match="can't be imported here"):
        app_named("serve_apps.absent:SPEC")


def test_a_serve_config_names_an_own_app_among_the_arguments(tmp_path: Path) -> None:
    from docs import own_model
    from serve_apps import app

    own_model.publish(tmp_path)
    found = deployments(app({"app": "docs.own_model:config", "home": tmp_path, "gateways": 1}))
    assert found["gateway"].num_replicas == 1
    assert found["gateway"].init_args[0].task.quality == own_model.config.quality
    with pytest.raises(ConfigError, match=r"docs\.absent:config can't be imported here"):
        app({"app": "docs.absent:config", "home": tmp_path})


def test_the_example_is_built_without_torch() -> None:
    code = "import sys, serve_apps; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]
