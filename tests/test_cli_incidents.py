"""``failsoft incidents``, their report, and the refusals of ``failsoft replay``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from failsoft.cli import replay as _replay  # noqa: F401 -- hangs its command on the app
from failsoft.cli import runs as _runs  # noqa: F401 -- the same
from failsoft.cli.app import app
from failsoft.errors import ArtifactMissingError, ConfigError
from failsoft.health.ledger_files import all_lines
from tests.incidents.made import Told


@pytest.fixture
def home(tmp_path: Path) -> Path:
    Told(tmp_path).whole_incident()
    return tmp_path


def failsoft(home: Path, *arguments: str) -> str:
    done = CliRunner().invoke(app, [*arguments, "--home", str(home)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_each_incident_is_a_line_and_a_json_object(home: Path) -> None:
    said = failsoft(home, "incidents")
    assert "incident-12" in said
    assert "760 of 960" in said
    (body,) = json.loads(failsoft(home, "incidents", "--json"))
    assert (body["name"], body["relapses"], body["answers"]["during"]["replaced"]) == ("incident-12", 1, 760)
    assert "no incident" in failsoft(home / "none", "incidents")


@pytest.mark.parametrize("name", ["incident-12", "incident-last"])
def test_its_report_is_a_page_and_a_picture(home: Path, name: str) -> None:
    said = failsoft(home, "report", name)
    assert "12 weak of 40" in said
    assert (home / "reports" / "incident-12.html").read_text().startswith("<!doctype html>")
    assert (home / "reports" / "incident-12.png").read_bytes().startswith(b"\x89PNG")


def test_what_is_not_there_is_refused_with_what_is(home: Path) -> None:
    with pytest.raises(ArtifactMissingError, match="incident-12"):
        failsoft(home, "report", "incident-99")
    with pytest.raises(ArtifactMissingError, match="keep_texts"):
        failsoft(home, "replay", "incident-12")
    with pytest.raises(ConfigError, match="--text"):
        failsoft(home, "replay")
    with pytest.raises(ArtifactMissingError, match="failsoft train"):
        failsoft(home, "replay", "--text", "play jazz")


def test_a_half_character_or_a_terminals_sign_keeps_nobody_from_any_incident(tmp_path: Path) -> None:
    Told(tmp_path).plan("degraded", "half \ud800 \x1b[2J")
    for asked in (["incidents"], ["incidents", "--json"], ["report", "incident-last"]):
        said = failsoft(tmp_path, *asked)
        assert "\x1b" not in said
        said.encode()
    assert "half \\ud800 \\u001b[2J" in failsoft(tmp_path, "report", "incident-last")


def test_the_history_is_read_once_for_all_incidents(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told, read = Told(home), list[Path]()
    for _ in range(5):
        told.whole_incident()

    def lines(path: Path) -> Iterator[bytes]:
        read.append(path)
        return all_lines(path)

    monkeypatch.setattr("failsoft.incidents.answers.all_lines", lines)
    assert len(json.loads(failsoft(home, "incidents", "--json"))) == 6
    assert len(read) == 1
