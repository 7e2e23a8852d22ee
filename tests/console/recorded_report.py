"""What the report of a recorded incident has to hold."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from failsoft.cli import runs as _runs  # noqa: F401 -- hangs its command on the app
from failsoft.cli.app import app

PARTS = (
    "What to do next",
    "What was seen",
    "What was done, and why",
    "Answers by source, and their quality",
    "Some of the requests that went wrong",
    "Reproduction",
)


def report_of(home: Path, name: str) -> Path:
    """Have ``failsoft report`` write it; the page."""
    done = CliRunner().invoke(app, ["report", name, "--home", str(home)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert (home / "reports" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    return home / "reports" / f"{name}.html"


def assert_whole(text: str, *, is_fall: bool, broke: str) -> None:
    """Each part is there and says something; texts are hidden, and before the incident there was health."""
    places = [text.index(f"<h2>{part}") for part in PARTS]
    assert places == sorted(places)
    parts = dict(zip(PARTS, [text[a:b] for a, b in zip(places, [*places[1:], len(text)], strict=True)], strict=True))
    assert ("gateway_tripped" if is_fall else "_began") in parts["What was seen"]
    assert ("SERVING → DEGRADED" if is_fall else "Nothing: no stage moved") in parts["What was done, and why"]
    rows = re.findall(r"<tr>(.*?)</tr>", parts["Answers by source, and their quality"])
    cells = {row[0]: row[1:] for row in (re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row) for row in rows)}
    share = float(cells["by primary"][0].partition("(")[2].partition("%")[0])
    assert share > 90.0, f"before it the answers were the model's, but for what a busy machine delays; not {cells}"
    assert int(cells[f"not the model: {broke}"][1].split()[0].replace(",", "")) > 0
    assert float(cells["models&#x27; mean confidence"][0]) > 0.9
    samples = parts["Some of the requests that went wrong"]
    assert f"<td>{broke}</td>" in samples
    assert "only their shape" in samples
    assert "Berlin" not in text
    assert "r-20" in parts["Reproduction"]
    assert "keep_texts" in parts["Reproduction"]


def listed(home: Path) -> list[dict[str, Any]]:
    """What ``failsoft incidents --json`` says."""
    done = CliRunner().invoke(app, ["incidents", "--json", "--home", str(home)], catch_exceptions=False)
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found
