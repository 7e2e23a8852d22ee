"""Whoever ends a machine must leave the time that the code needs: deploy/ against the code's own numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
import yaml
from ray._private import ray_constants
from ray.serve._private.constants import PROXY_MIN_DRAINING_PERIOD_S
from ray.serve.schema import ServeDeploySchema

from failsoft.serving.app import _deploy
from failsoft.serving.replicas.deployments import Fallback
from failsoft.serving.settings import ServeSettings
from failsoft.training import ray_train
from failsoft.training.survival.notice import NoticePolicy
from tests.conftest import ROOT
from tests.deploy.kustomized import BUILDS, KUBERNETES, Object, built, pod_specs
from tests.deploy.units import UNITS, Unit
from train_jobs import child

WORKERS_LEAVE_S = NoticePolicy().grace_s
RUN_LEAVES_S = WORKERS_LEAVE_S + child._END_S
"""Workers save and leave, then the driver ends its Ray."""
REPLICAS_LEAVE_S = _deploy(
    Fallback, "fallback", ServeSettings(), replicas=1
)._deployment_config.graceful_shutdown_timeout_s
NODE_DRAINS_S = max(WORKERS_LEAVE_S + ray_train._DRAIN_MARGIN_S, PROXY_MIN_DRAINING_PERIOD_S + REPLICAS_LEAVE_S)
"""From the notice until nothing runs on a Ray node: a run saves, or a proxy and replicas leave."""
SLACK_S = 10.0


def ends(build: str) -> Iterator[tuple[Object, list[str]]]:
    """Pods with a preStop hook, and its command."""
    for one in built(KUBERNETES / build):
        for spec in pod_specs(one):
            hook = spec["containers"][0].get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command")
            if hook:
                yield spec, hook


def variable(spec: Object, name: str) -> str:
    return next(str(one["value"]) for one in spec["containers"][0]["env"] if one["name"] == name)


@pytest.mark.parametrize("build", BUILDS)
def test_a_pod_has_the_time_that_its_hook_and_ray_take(build: str) -> None:
    found = list(ends(build))
    assert found, "no pod has a hook"
    for spec, hook in found:
        hook_s = next(float(word) for word in hook if word.isdecimal())
        ray_s = float(variable(spec, "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"))
        assert spec["terminationGracePeriodSeconds"] >= hook_s + ray_s + SLACK_S, hook


@pytest.mark.parametrize("build", BUILDS)
def test_a_hook_gives_the_node_the_time_to_drain_or_the_run_the_time_to_leave(build: str) -> None:
    for _, hook in ends(build):
        hook_s = next(float(word) for word in hook if word.isdecimal())
        needed_s = RUN_LEAVES_S if hook[0].endswith("leave-run") else NODE_DRAINS_S
        assert hook_s >= needed_s, f"{hook} gives {hook_s:g} s, the code takes up to {needed_s:g}"


def test_a_training_heads_hook_tells_the_run_and_a_workers_drains_the_node() -> None:
    hooks = [hook[0] for _, hook in ends("training")]
    assert [Path(hook).name for hook in hooks] == ["leave-run", "leave-node"]


def test_a_run_that_was_handed_to_rays_jobs_has_the_time_to_save_when_it_is_stopped() -> None:
    """Its driver is a child of Ray's own on each place but Slurm."""
    said = (ROOT / "deploy" / "systemd" / "failsoft.env").read_text("utf-8")
    assert float(re.findall(r"^RAY_JOB_STOP_WAIT_TIME_S=(\d+)$", said, re.MULTILINE)[0]) >= RUN_LEAVES_S + SLACK_S
    for build in ("training", "cluster"):
        heads = [spec for one in built(KUBERNETES / build) for spec in pod_specs(one) if "ray-head" in str(spec)]
        assert heads
        assert all("RAY_JOB_STOP_WAIT_TIME_S" in str(spec) for spec in heads), build


@pytest.mark.parametrize(
    ("name", "read_by"),
    [
        ("RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S", "_private/ray_constants.py"),
        ("RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S", "serve/_private/constants.py"),
        ("RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S", "serve/_private/constants.py"),
        ("RAY_JOB_STOP_WAIT_TIME_S", "dashboard/modules/job/job_supervisor.py"),
        ("RAY_OVERRIDE_RESOURCES", "_private/ray_constants.py"),
    ],
)
def test_a_variable_that_we_set_is_one_that_this_ray_reads(name: str, read_by: str) -> None:
    """A name that Ray does not know is passed over without a word."""
    used = [path for path in (ROOT / "deploy").rglob("*") if path.is_file() and name in path.read_text("utf-8")]
    assert used, f"nothing sets {name} any more; take it out of this list"
    assert name in (Path(ray.__file__).parent / read_by).read_text("utf-8")


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_is_not_killed_before_its_process_is_done(unit: Unit) -> None:
    needed_s = {
        "failsoft-train@": RUN_LEAVES_S,
        "failsoft-serve": PROXY_MIN_DRAINING_PERIOD_S + REPLICAS_LEAVE_S,
        "failsoft-ray-head": ray_constants.RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S,
        "failsoft-ray-worker": max(ray_constants.RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S, NODE_DRAINS_S),
    }.get(unit.name, 5.0)
    assert float(unit.last("Service", "TimeoutStopSec", "90")) >= needed_s + SLACK_S


def test_a_spot_notice_is_spent_within_the_two_minutes_that_aws_gives() -> None:
    text = (ROOT / "deploy" / "ray" / "spot-notice").read_text("utf-8")
    found = dict(re.findall(r"\$\{FAILSOFT_SPOT_(\w+)_S:-(\d+)\}", text))
    look_s, within_s = float(found["LOOK"]), float(found["WITHIN"])
    assert within_s >= NODE_DRAINS_S
    assert look_s + within_s + 15.0 <= 120.0, "Ray's command itself takes seconds to start"


def test_the_config_for_serve_deploy_is_one_that_serve_takes_and_listens_on_loopback() -> None:
    config = ServeDeploySchema.model_validate(yaml.safe_load((ROOT / "deploy" / "serve.yaml").read_text("utf-8")))
    assert config.http_options.host == "127.0.0.1"
