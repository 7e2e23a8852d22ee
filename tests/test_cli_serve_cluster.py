"""An app that is handed to a cluster: nothing that runs there is lost by it, and how it starts is seen from here."""

from __future__ import annotations

import copy
from argparse import Namespace
from typing import Any

import pytest
from ray.serve.schema import ServeDeploySchema
from typer.testing import CliRunner

import failsoft.cli.main  # noqa: F401 -- hangs the commands on the app
from failsoft.cli.app import app
from failsoft.cli.serve_cluster import Wanted, deployed, wanted_of
from failsoft.errors import ConfigError, ServingError
from failsoft.health.clock import ManualClock
from tests.job_dashboard import dashboard

PLAIN = {"home": None, "release": None, "profile": "production", "gateways": 2, "traces": None, "keep_texts": False}
PLAIN |= {"host": "127.0.0.1", "port": 8000, "grpc_port": None, "own": None}
WANTED = Wanted(args={}, host="127.0.0.1", port=8000)
OTHER = {"name": "other", "route_prefix": "/other", "import_path": "other:app"}


def running(**entrance: Any) -> dict[str, Any]:
    app = {"source": "declarative", "deployed_app_config": OTHER, "route_prefix": "/other", "status": "RUNNING"}
    http = {"host": "127.0.0.1", "port": 8000} | entrance
    return {"http_options": http, "proxies": {"node": {}}, "applications": {"other": app}}


class Serve:
    """Starts what it is told, one look at a time."""

    def __init__(self, before: dict[str, Any] | None = None, *, ends: str = "RUNNING", message: str = "") -> None:
        self.before = before or {"applications": {}, "proxies": {}}
        self.taken: list[dict[str, Any]] = []
        self._ends, self._message, self._looks = ends, message, 0

    def get_serve_details(self) -> dict[str, Any]:
        if not self.taken:
            return copy.deepcopy(self.before)
        self._looks += 1
        replicas = [{"state": "RUNNING" if self._looks > place else "STARTING"} for place in (1, 2)]
        deployments = {"Gateway": {"target_num_replicas": 2, "replicas": replicas, "message": self._message}}
        status = self._ends if self._looks > 3 else "DEPLOYING"
        return {"applications": {"failsoft": {"status": status, "message": "", "deployments": deployments}}}

    def deploy_applications(self, config: dict[str, Any]) -> None:
        ServeDeploySchema.model_validate(config)  # what Serve itself reads it by
        self.taken.append(config)


def carried(serve: Serve, wanted: Wanted = WANTED) -> tuple[str, list[str]]:
    said: list[str] = []
    return deployed(serve, wanted, say=said.append, clock=ManualClock()), said


def test_it_is_deployed_by_config_and_its_start_is_told() -> None:
    serve = Serve()
    url, said = carried(serve, Wanted(args={"gateways": 3}, host="10.0.0.7", port=9000, grpc_port=9001))
    assert url == "http://10.0.0.7:9000"
    (config,) = serve.taken
    assert config["applications"][0]["args"] == {"gateways": 3}
    assert config["grpc_options"]["port"] == 9001
    assert said == ["Gateway 0 of 2", "Gateway 1 of 2", "Gateway 2 of 2"]


def test_other_apps_that_were_deployed_by_config_go_on_as_they_are() -> None:
    """A config removes what it does not name."""
    serve = Serve(running())
    carried(serve)
    assert OTHER in serve.taken[0]["applications"]


def test_apps_that_python_started_are_left_alone() -> None:
    before = running()
    before["applications"]["other"] |= {"source": "imperative", "deployed_app_config": None}
    serve = Serve(before)
    carried(serve)
    assert [one["name"] for one in serve.taken[0]["applications"]] == ["failsoft"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"source": "declarative", "deployed_app_config": None}, "does not say how the app other was deployed"),
        ({"route_prefix": "/"}, "the app other has the route / there"),
    ],
)
def test_an_app_in_the_way_is_named_and_nothing_is_changed(change: dict[str, Any], says: str) -> None:
    before = running()
    before["applications"]["other"] |= change
    serve = Serve(before)
    with pytest.raises(ConfigError, match=says):
        carried(serve)
    assert serve.taken == []


def test_one_of_the_same_name_that_python_started_is_not_replaced() -> None:
    before = running()
    before["applications"]["failsoft"] = {"source": "imperative", "route_prefix": "/"}
    with pytest.raises(ConfigError, match="started from Python"):
        carried(Serve(before))


def test_another_port_than_the_one_where_serve_listens_is_refused_with_the_one_to_give() -> None:
    """Serve passes it over, and callers would look for the app where it is not."""
    with pytest.raises(ConfigError, match=r"give --host 10\.0\.0\.7 --port 8000"):
        carried(Serve(running(host="10.0.0.7")))


TRACEBACK = """The deployment failed to start 3 times in a row. Error:
Traceback (most recent call last):
  File "x.py", line 1, in load
failsoft.errors.ArtifactMissingError: no release in /shared/releases; make one: failsoft train
"""


def test_an_app_that_does_not_start_is_told_in_its_own_words() -> None:
    with pytest.raises(ServingError, match=r"DEPLOY_FAILED\): ArtifactMissingError: no release in .*failsoft train"):
        carried(Serve(ends="DEPLOY_FAILED", message=TRACEBACK))


def test_one_that_neither_starts_nor_fails_is_given_up_with_how_far_it_came() -> None:
    with pytest.raises(ServingError, match=r"after 600 s the app is still DEPLOYING \(Gateway 2 of 2\)"):
        carried(Serve(ends="DEPLOYING"))


def test_the_arguments_of_the_app_are_those_that_were_asked_for() -> None:
    assert wanted_of(Namespace(**PLAIN)).args == {}
    asked = PLAIN | {"home": "/shared", "gateways": 4, "own": "pkg.mod:config", "keep_texts": True}
    assert wanted_of(Namespace(**asked)).args == {
        "home": "/shared",
        "gateways": 4,
        "keep_texts": True,
        "app": "pkg.mod:config",
    }
    over_grpc = PLAIN | {"grpc_port": 9000, "host": "10.0.0.7"}
    assert wanted_of(Namespace(**over_grpc)).args == {"grpc_from": "anywhere"}
    with pytest.raises(ConfigError, match="arguments don't fit"):
        wanted_of(Namespace(**(PLAIN | {"profile": "fast"})))


def test_the_way_in_of_this_machine_is_not_one_of_a_cluster() -> None:
    done = CliRunner().invoke(app, ["serve", "--address", "x", "--ingress", "fast"])
    assert isinstance(done.exception, ConfigError)
    assert "RAY_SERVE_ENABLE_HA_PROXY" in str(done.exception)


def test_the_command_deploys_by_rays_own_client_and_again_changes_what_runs() -> None:
    with dashboard() as board:
        for words in (["--gateways", "3"], ["--gateways", "1", "--app", "docs.own_model:config"]):
            done = CliRunner().invoke(app, ["serve", "--address", board.url, *words])
            assert done.exit_code == 0, (done.output, done.exception)
            assert "each node with a gateway listens at http://127.0.0.1:8000" in " ".join(done.output.split())
        elsewhere = CliRunner().invoke(app, ["serve", "--address", board.url, "--port", "8001"])
    assert [one["applications"][0]["args"] for one in board.configs] == [
        {"gateways": 3},
        {"gateways": 1, "app": "docs.own_model:config"},
    ]
    assert "give --host 127.0.0.1 --port 8000" in str(elsewhere.exception)
