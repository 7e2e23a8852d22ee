"""docs/deploy.md names what is there."""

from __future__ import annotations

import re
from typing import Any

from typer.main import get_command

from failsoft.cli import main as _commands  # noqa: F401 -- importing it hangs the commands on the app
from failsoft.cli.app import app
from tests.conftest import ROOT
from tests.deploy.kustomized import BUILDS
from tests.deploy.units import UNITS
from tests.test_house_rules import exists, paths_named_in

PAGE = (ROOT / "docs" / "deploy.md").read_text("utf-8")
BLOCKS = re.findall(r"```\n(.*?)```", PAGE, re.DOTALL)


def test_every_path_that_the_page_names_exists() -> None:
    typed = set(re.findall(r"\b(deploy/[\w./-]+\w)", "\n".join(BLOCKS)))
    absent = sorted(word for word in paths_named_in(PAGE) | typed if not exists(word))
    assert [word for word in absent if not (ROOT / "deploy" / "ray" / word).exists()] == []
    assert "deploy/slurm/train.sbatch" in typed


def test_every_command_of_ours_that_it_types_exists() -> None:
    commands: Any = get_command(app)
    said = re.findall(r"^failsoft ([a-z]+)(?: ([a-z]+))?", "\n".join(BLOCKS), re.MULTILINE)
    assert said
    for first, second in said:
        group = commands.commands[first]
        assert not hasattr(group, "commands") or second in group.commands


def test_every_unit_and_every_kustomization_is_on_the_page() -> None:
    for unit in UNITS:
        if unit.name not in {"failsoft-ray-worker", "failsoft-spot-notice"}:  # started by start-node, not by people
            assert unit.name.rstrip("@") in PAGE
    for build in BUILDS:
        assert build in PAGE


def test_the_firewall_that_it_types_is_also_switched_on() -> None:
    """Its rules alone close nothing."""
    (typed,) = [line for block in BLOCKS for line in block.splitlines() if "ufw default deny" in line]
    rules = typed.split(" && ")
    assert rules.index("sudo ufw allow ssh") < rules.index("sudo ufw enable"), "or whoever types it is shut out"


def test_no_secret_that_it_types_is_an_argument() -> None:
    """Arguments are in ``ps`` for everybody on the machine."""
    made = [line for block in BLOCKS for line in block.splitlines() if "create secret" in line or "--from-" in line]
    assert any("--from-file=operator=<(" in line for line in made)
    assert not any("--from-literal=" in line and "$(" in line for line in "\n".join(BLOCKS).splitlines())
