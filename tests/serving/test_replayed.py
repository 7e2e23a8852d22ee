"""Kept instances of an own app, tried again on a release."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from failsoft.artifacts.home import Home
from failsoft.cli import replay as _replay  # noqa: F401 -- hangs its command on the app
from failsoft.cli.app import app
from failsoft.health.clock import SystemClock
from serve_apps.replay import replay
from tests.incidents.made import Told
from tests.serving.own_world import example


def test_an_instance_that_was_kept_as_json_is_read_by_the_apps_schema_and_answered(tmp_path: Path) -> None:
    there = example()
    found = replay(there["publish"](tmp_path), [[70.0, 3.0], "▮"], SystemClock(), there["config"])
    assert (found[0].source, found[0].verdict) == ("primary", "clean")
    assert (found[1].source, found[1].verdict) == ("nobody", "not read")
    assert found[1].why.startswith("the app's schema refuses it")


def test_the_command_takes_instances_from_the_history_of_the_incident(tmp_path: Path) -> None:
    there, told = example(), Told(tmp_path)
    there["publish"](tmp_path)
    told.plan("degraded", "12 weak of 40")
    told.clock.advance(1.0)
    flat = {"why": "weak", "said": "", "shape": "[99.9, 9.9]", "text": "[70.0, 3.0]", "instance": "[70.0, 3.0]"}
    told.span({"by_size": 3}, (flat,))
    command = ["replay", "incident-11", "--app", "docs.own_model:config", "--json", "--home", str(tmp_path)]
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    (one,) = [json.loads(line) for line in done.stdout.splitlines()]
    assert (one["asked"], one["source"], one["answer"]["output"]) == ([70.0, 3.0], "primary", 305.0)
    assert Home.find(tmp_path).root == tmp_path
