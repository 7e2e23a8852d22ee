"""``failsoft ckpt`` and ``failsoft plan`` as one types them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from failsoft.cli import checkpoints as _checkpoints  # noqa: F401 -- hangs its commands on the app
from failsoft.cli import plan as _plan  # noqa: F401 -- the same
from failsoft.cli.app import app
from failsoft.errors import ArtifactMissingError, ConfigError
from tests.training.toys import toy_loop

NAMES = [f"position-{position:012d}" for position in (8, 16, 24)]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    toy_loop(tmp_path / "runs" / "first").run()
    return tmp_path


def typed(home: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["ckpt", *words, "--home", str(home)])


def read(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def spoil(home: Path, name: str) -> None:
    path = home / "runs" / "first" / "checkpoints" / name / "state.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\x7f")


def test_ls_lists_by_position(home: Path) -> None:
    listed = read(typed(home, "ls", "first", "--json"))
    assert [(one["name"], one["step"], one["healthy"]) for one in listed] == [
        (name, step, True) for name, step in zip(NAMES, (8, 16, 24), strict=True)
    ]
    assert NAMES[0] in typed(home, "ls", "first").stdout


def test_verify_says_whole_and_ends_with_zero(home: Path) -> None:
    assert [entry["damage"] for entry in read(typed(home, "verify", "first", "--json"))] == [None] * 3


def test_verify_says_which_is_damaged_and_ends_with_two(home: Path) -> None:
    spoil(home, NAMES[1])
    said = typed(home, "verify", "first", "--json")
    assert said.exit_code == 2
    assert [entry["name"] for entry in json.loads(said.stdout) if entry["damage"]] == [NAMES[1]]
    assert "damaged" in typed(home, "verify", "first").stdout


def test_show_tells_what_a_checkpoint_holds(home: Path) -> None:
    assert read(typed(home, "show", "first", "16", "--json"))["meta"]["position"] == 16
    shown = typed(home, "show", "first").stdout
    assert all(word in shown for word in (NAMES[2], "optimizer/exp_avg", "learning rates"))


def test_diff_tells_how_far_each_part_moved(home: Path) -> None:
    told = read(typed(home, "diff", "first", "8", "newest", "--json"))
    assert {change["group"] for change in told["changes"]} >= {"model/0", "optimizer/exp_avg"}
    assert told["scalars"]["position"] == [8, 24]
    assert "how far it moved" in typed(home, "diff", "first", "8", "16").stdout


def test_prune_only_names_what_would_go(home: Path) -> None:
    assert read(typed(home, "prune", "first", "--last", "1", "--json"))["would_remove"] == NAMES[:2]
    assert len(read(typed(home, "ls", "first", "--json"))) == 3


def test_prune_removes_with_yes_and_never_the_last(home: Path) -> None:
    assert read(typed(home, "prune", "first", "--last", "1", "--yes", "--json"))["removed"] == NAMES[:2]
    assert read(typed(home, "prune", "first", "--last", "1", "--yes", "--json"))["removed"] == []
    assert [one["name"] for one in read(typed(home, "ls", "first", "--json"))] == [NAMES[2]]


def test_a_run_that_is_not_there_is_refused_with_those_that_are(home: Path) -> None:
    error = typed(home, "ls", "second").exception
    assert isinstance(error, ArtifactMissingError)
    assert "there: first" in str(error)


def plan(*words: str) -> Result:
    return CliRunner().invoke(app, ["plan", *words])


def test_a_plan_prints_formula_and_simulation_side_by_side() -> None:
    shown = plan("--mtbf", "30d", "--checkpoint-cost", "30s", "--nodes", "64", "--step", "2s").stdout
    assert all(word in shown for word in ("Daly", "Young", "in the simulation", "Checkpoint every", "In steps of 2 s"))


def test_a_plan_as_json_gives_the_interval() -> None:
    told = json.loads(plan("--mtbf", "24h", "--checkpoint-cost", "300s", "--json").stdout)
    assert told["interval_s"] == pytest.approx(7000, rel=0.02)
    for trial in told["trials"]:
        assert trial["simulated"] == pytest.approx(trial["expected"], abs=0.03)


def test_a_plan_for_a_hopeless_cluster_says_so() -> None:
    assert "no interval mends that" in plan(
        "--mtbf", "1h", "--checkpoint-cost", "60s", "--nodes", "500"
    ).stdout.replace("\n", " ")


def test_a_time_that_is_none_is_refused() -> None:
    assert isinstance(plan("--mtbf", "soon", "--checkpoint-cost", "1s").exception, ConfigError)
