"""``cluster.yaml`` is what ``ray up`` accepts, checked without a cloud."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.conftest import ROOT


@pytest.fixture(scope="module")
def cluster() -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / "cluster.yaml").read_text("utf-8")))


def test_ray_accepts_the_cluster_file(cluster: dict[str, Any]) -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    validate_config(prepare_config(cluster))


def test_ray_would_refuse_an_unknown_field(cluster: dict[str, Any]) -> None:
    """Else the test above would prove nothing."""
    from jsonschema import ValidationError
    from ray.autoscaler._private.util import prepare_config, validate_config

    with pytest.raises(ValidationError, match="surprise"):
        validate_config(prepare_config(cluster | {"surprise": 1}))


def test_the_head_is_on_demand_and_the_workers_are_spot(cluster: dict[str, Any]) -> None:
    types = cluster["available_node_types"]
    assert "InstanceMarketOptions" not in types[cluster["head_node_type"]]["node_config"]
    assert types["worker"]["node_config"]["InstanceMarketOptions"]["MarketType"] == "spot"


def test_nodes_install_the_pinned_versions_and_the_dashboard_stays_on_loopback(cluster: dict[str, Any]) -> None:
    assert any("-c ~/failsoft/constraints.txt" in command for command in cluster["setup_commands"])
    head_start = " ".join(cluster["head_start_ray_commands"])
    assert "--dashboard-host=127.0.0.1" in head_start


def test_every_node_checks_the_token(cluster: dict[str, Any]) -> None:
    assert any("RAY_AUTH_MODE=token" in command for command in cluster["setup_commands"])
    assert any(target.endswith(".ray/auth_token") for target in cluster["file_mounts"])
