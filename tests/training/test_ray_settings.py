"""How a run tells Ray which nodes to keep away from."""

from __future__ import annotations

from pathlib import Path

import pytest

from failsoft.errors import ConfigError
from failsoft.training.ray_settings import RaySettings

PLACE = Path("run")


def settings(*excluded: str) -> RaySettings:
    return RaySettings(folder=PLACE, ledger=PLACE / "ledger.jsonl", excluded=frozenset(excluded))


def test_excluded_nodes_are_named_without_blanks_since_ray_would_take_one_for_a_part_of_the_id() -> None:
    assert settings("b2", "a1").selector() == {"ray.io/node-id": "!in(a1,b2)"}


def test_without_excluded_nodes_any_node_will_do() -> None:
    assert settings().selector() is None


def test_an_id_that_no_selector_can_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="'a1, b2'"):
        settings("a1, b2")
