"""Every command of Ray's that something in deploy/ types has these options in the Ray that is installed."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from ray.scripts.scripts import cli as ray_cli
from ray.serve.scripts import cli as serve_cli

from tests.conftest import ROOT
from tests.deploy.units import UNITS

SHELL = [ROOT / "deploy" / "slurm" / "train.sbatch", *sorted((ROOT / "deploy" / "ray").glob("[a-z]*-[a-z]*"))]


def text_of(path: Path) -> str:
    """With lines that go on joined, without comments, and the options of an array put where it is used."""
    joined = path.read_text("utf-8").replace("\\\n", " ")
    code = "\n".join(line.partition(" #")[0] for line in joined.splitlines() if not line.lstrip().startswith("#"))
    for name, inside in re.findall(r"^(\w+)=\(\n(.*?)^\)", code, re.MULTILINE | re.DOTALL):
        code = code.replace(f'"${{{name}[@]}}"', inside.replace("\n", " "))
    return code


def typed(code: str) -> list[tuple[str, str, set[str]]]:
    """Program, command and options of each call."""
    calls = re.findall(r"(?:^|[\s/])(ray|serve) (start|health-check|drain-node|deploy|shutdown) ([^\n;|&]*)", code)
    return [(program, command, set(re.findall(r"(?<=\s)--[a-z-]+", " " + rest))) for program, command, rest in calls]


@pytest.mark.parametrize("path", [*SHELL, *(unit.path for unit in UNITS)], ids=lambda path: path.name)
def test_ray_has_the_options_that_are_typed(path: Path) -> None:
    groups: dict[str, click.Group] = {"ray": ray_cli, "serve": serve_cli}
    for program, command, options in typed(text_of(path)):
        known = {name for one in groups[program].commands[command].params for name in (*one.opts, *one.secondary_opts)}
        assert options <= known, f"{program} {command}"


def test_the_calls_are_found() -> None:
    """Else the test above would prove nothing."""
    slurm = typed(text_of(SHELL[0]))
    assert [(program, command) for program, command, _ in slurm] == [
        ("ray", "start"),
        ("ray", "health-check"),
        ("ray", "start"),
    ]
    assert {"--head", "--object-manager-port", "--dashboard-port"} <= slurm[0][2]
    head = next(unit for unit in UNITS if unit.name == "failsoft-ray-head")
    assert "--min-worker-port" in typed(text_of(head.path))[0][2]
    assert any(command == "drain-node" for path in SHELL for _, command, _ in typed(text_of(path)))
