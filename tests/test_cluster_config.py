"""``cluster.yaml`` and its like for own machines are what ``ray up`` accepts, checked without a cloud."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.conftest import ROOT

FILES = ("cluster.yaml", "deploy/ray/local.yaml")


def read(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / name).read_text("utf-8")))


@pytest.fixture(scope="module")
def cluster() -> dict[str, Any]:
    return read("cluster.yaml")


@pytest.mark.parametrize("name", FILES)
def test_ray_accepts_the_cluster_file(name: str) -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    validate_config(prepare_config(read(name)))


@pytest.mark.parametrize("name", FILES)
def test_ray_would_refuse_an_unknown_field(name: str) -> None:
    """Else the test above would prove nothing."""
    from jsonschema import ValidationError
    from ray.autoscaler._private.util import prepare_config, validate_config

    with pytest.raises(ValidationError, match="surprise"):
        validate_config(prepare_config(read(name) | {"surprise": 1}))


def test_the_head_is_on_demand_and_the_gpu_workers_are_spot(cluster: dict[str, Any]) -> None:
    types = cluster["available_node_types"]
    head, worker = types[cluster["head_node_type"]], types["worker"]
    assert "InstanceMarketOptions" not in head["node_config"]
    assert worker["node_config"]["InstanceMarketOptions"]["MarketType"] == "spot"
    assert (worker["resources"]["GPU"], head["resources"].get("GPU", 0)) == (1, 0)


def test_no_node_takes_rays_default_image_or_its_group_with_ssh_open_to_the_world(cluster: dict[str, Any]) -> None:
    """The image has Python 3.6, on which nothing of ours runs."""
    for node in cluster["available_node_types"].values():
        config = node["node_config"]
        assert config["ImageId"] == cluster["metadata"]["image"]
        assert config["SecurityGroupIds"] == [cluster["metadata"]["security_group"]]
        assert config["MetadataOptions"]["HttpTokens"] == "required"


@pytest.mark.parametrize("name", FILES)
def test_nodes_are_set_up_and_started_by_our_scripts_from_the_mounted_checkout(name: str) -> None:
    body = read(name)
    home = f"/home/{body['auth']['ssh_user']}"
    assert body["file_mounts"][f"{home}/failsoft"] == "."
    assert body["file_mounts"][f"{home}/.ray/auth_token"] == "~/.ray/auth_token"
    commands = {key: body[f"{key}_commands"] for key in ("setup", "head_start_ray", "worker_start_ray")}
    for lines in commands.values():
        script = next(word for word in " ".join(lines).split() if word.startswith("~/failsoft/"))
        assert (ROOT / script.removeprefix("~/failsoft/")).is_file()
    assert "ray stop" not in str(commands)


def test_nodes_install_the_pinned_versions_and_check_the_token() -> None:
    script = (ROOT / "deploy" / "ray" / "set-up-node").read_text("utf-8")
    assert '-c "$checkout/constraints.txt"' in script
    assert "install -m 600 ~/.ray/auth_token /etc/failsoft/ray-token" in script
    environment = (ROOT / "deploy" / "systemd" / "failsoft.env").read_text("utf-8")
    assert "RAY_AUTH_MODE=token\nRAY_AUTH_TOKEN_PATH=/etc/failsoft/ray-token\n" in environment


def test_what_is_to_be_filled_in_is_marked_and_named_in_the_comments() -> None:
    text = (ROOT / "cluster.yaml").read_text("utf-8")
    assert sum("FILL-IN" in line and not line.lstrip().startswith("#") for line in text.splitlines()) == 3
