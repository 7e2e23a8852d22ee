"""A run whose folder's name is no text: every command shows it escaped, on a terminal that takes nothing but UTF-8."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest

from failsoft.artifacts.home import Home
from failsoft.cli.main import main
from failsoft.health.clock import ManualClock
from failsoft.health.ledger import Ledger, Side

NAME = os.fsdecode(b"run-\xff$x$")
COMMANDS = [
    ("runs",),
    ("runs", NAME),
    ("ckpt", "ls", NAME),
    ("ckpt", "verify", NAME),
    ("ckpt", "show", NAME, NAME),
    ("ckpt", "prune", NAME),
    ("events",),
    ("verify", NAME),
    ("goodput", NAME),
    ("report", NAME),
    ("dlq", "ls", NAME),
    ("preempt", NAME),
    ("doctor",),
]
NAMING = (("runs",), ("runs", NAME), ("events",), ("verify", NAME), ("preempt", NAME), ("ckpt", "show", NAME, NAME))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    place, clock = Home(root=tmp_path), ManualClock()
    for folder in (place.run(NAME) / "checkpoints" / NAME, place.run(NAME) / "dead_letters"):
        folder.mkdir(parents=True)
    ledger = Ledger(place.ledger, clock, side=Side.TRAINING, subject=NAME)
    ledger.record("run_started", f"from {NAME}", position=0, total_batches=9, world=1)
    clock.advance(9.0)
    ledger.record("run_stopped", f"the folder of {NAME} is full", position=3, step=3)
    return tmp_path


def said(monkeypatch: pytest.MonkeyPatch, encoding: str, *arguments: str) -> tuple[object, str]:
    """Exit status, and all that was written to streams that refuse what their encoding has not."""
    written = io.BytesIO(), io.BytesIO()
    for name, buffer in zip(("stdout", "stderr"), written, strict=True):
        monkeypatch.setattr(sys, name, io.TextIOWrapper(buffer, encoding, errors="strict", write_through=True))
    monkeypatch.setattr(sys, "argv", ["failsoft", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code or 0, "".join(buffer.getvalue().decode(encoding) for buffer in written)


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command).encode("ascii", "replace").decode())
def test_a_name_that_is_no_text_is_shown_escaped(
    home: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], encoding: str
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(home)
    for more in ((), ("--json",)):
        status, words = said(monkeypatch, encoding, *command, "--home", str(home), *more)
        assert status in {0, 1, 2}
        assert "Traceback" not in words
        assert command not in NAMING or r"run-\udcff" in words


def test_the_page_of_such_a_run_is_written_and_names_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    status, _ = said(monkeypatch, "utf-8", "report", NAME, "--home", str(home))
    pages = [path.read_text("utf-8") for path in home.rglob("*.html")]
    assert (status, len(pages)) == (0, 1)
    assert r"Run run-\udcff$x$" in pages[0]
