from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from failsoft.cli import main as _main  # noqa: F401 -- hangs every command on the app
from failsoft.cli.app import app
from failsoft.drills.catalogue import listing
from failsoft.errors import ConfigError


def test_the_list_names_every_fault_of_both_sides_and_breaks_nothing() -> None:
    shown = json.loads(CliRunner().invoke(app, ["drill", "--list", "--json"]).stdout)
    assert [(entry["side"], entry["kind"]) for entry in shown] == [(entry.side, entry.kind) for entry in listing()]
    assert "what is asked" in CliRunner().invoke(app, ["drill", "--list"]).stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--train", "no.py"], "there is no script no.py"),
        (["--fault", "oops", "--module", "json"], "--fault oops"),
        (["--", "--lr", "0.1"], "belong to no script"),
        (["--module", "json", "--command", "torchrun x.py"], "exactly one"),
        (["--serve", "app:app", "--payload", "{no"], "is no JSON"),
    ],
)
def test_a_drill_of_nothing_is_refused_in_words(tmp_path: Path, words: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        CliRunner().invoke(app, ["drill", "--out", str(tmp_path), *words], catch_exceptions=False)


def test_a_script_that_is_not_well_exits_1_and_leaves_all_three_files(tmp_path: Path) -> None:
    script = tmp_path / "own.py"
    script.write_text("raise SystemExit('no data')", "utf-8")
    done = CliRunner().invoke(app, ["drill", "--train", str(script), "--out", str(tmp_path / "out"), "--json"])
    assert done.exit_code == 1
    (found,) = json.loads(done.stdout)["drills"]
    assert not found["passed"]
    assert "no data" in found["reference"]["why"]
    assert {path.name for path in (tmp_path / "out").iterdir() if path.is_file()} == {
        "matrix.json",
        "matrix.html",
        "junit.xml",
    }


def test_a_drill_in_which_nothing_could_be_tried_exits_1_for_nothing_is_known(tmp_path: Path) -> None:
    """It exited as if something had been lost, and no document said so."""
    script = tmp_path / "own.py"
    script.write_text(
        "import torch\n"
        "torch.manual_seed(0)\n"
        "model = torch.nn.Linear(2, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for batch in torch.randn(4, 3, 2):\n"
        "    optimizer.zero_grad()\n"
        "    model(batch).square().mean().backward()\n"
        "    optimizer.step()\n",
        "utf-8",
    )
    words = ["drill", "--train", str(script), "--fault", "torn-checkpoint", "--out", str(tmp_path / "out"), "--json"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 1, done.output
    (found,) = json.loads(done.stdout)["drills"]
    assert found["counts"] == {"survived": 0, "lost": 0, "undecided": 0, "not tried": 1}
    assert not found["passed"]
