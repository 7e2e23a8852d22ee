"""``failsoft fleet`` in words, as JSON and as a picture."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import failsoft.cli.fleet  # noqa: F401 -- importing it hangs its command on the app
from failsoft.cli.app import app
from failsoft.errors import ConfigError

QUICK = ["fleet", "--days", "1", "--seeds", "2"]


def run(*more: str) -> str:
    result = CliRunner().invoke(app, [*QUICK, *more])
    if isinstance(result.exception, ConfigError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def test_it_says_the_ratio_its_interval_and_what_was_published() -> None:
    said = " ".join(run().split())
    assert "16384 GPUs on 2048 nodes and 32 spares for 1 days, 2 runs" in said
    assert "Llama 3, 16,384 GPUs: 90%; ByteRobust, 9,600 GPUs: 97%" in said
    assert "start of workers" in said


def test_in_json_the_shares_are_those_of_the_whole_time_and_the_same_seeds_give_the_same() -> None:
    first, again = run("--json"), run("--json")
    assert first == again
    found = json.loads(first)
    assert sum(found["shares"].values()) == pytest.approx(1.0)
    assert found["ettr"]["value"] == pytest.approx(found["shares"]["productive"])
    assert found["interruptions"]["node ill"] > 0


def test_a_smaller_fleet_of_the_same_machines_loses_less() -> None:
    small, large = (json.loads(run("--gpus", gpus, "--json"))["ettr"]["value"] for gpus in ("1024", "16384"))
    assert small > large


def test_the_picture_is_written_with_the_levers_and_without(tmp_path: Path) -> None:
    run("--picture", str(tmp_path / "plain.png"))
    said = run("--gpus", "512", "--levers", "--picture", str(tmp_path / "new" / "levers.png"))
    assert "what buys most" in said
    for name in ("plain.png", "new/levers.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_gpus_that_fill_no_node_are_refused() -> None:
    with pytest.raises(ConfigError, match="--gpus is 100; a node has 8"):
        run("--gpus", "100")
