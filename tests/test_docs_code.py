"""What the documents tell a reader to type works: Python runs, commands exist with all their options, bounds hold.

The blocks of one document share their names, top to bottom, as a reader has them. Commands that are quick are carried
out in the folder that the blocks have left; the heavy ones (train, serve, demo) are carried out by the drills.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from torch import nn
from typer.testing import CliRunner

from failsoft.cli import main as _main  # noqa: F401 -- hangs every command on the app
from failsoft.cli.app import app
from failsoft.cli.settings_page import all_settings
from failsoft.training.guard import StepGuard
from tests.conftest import ROOT

DOCUMENTS = sorted([*ROOT.glob("docs/*.md"), ROOT / "README.md", ROOT / "README.zh-CN.md", ROOT / "CONTRIBUTING.md"])
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`(failsoft [a-z][^`]*)`", re.DOTALL)
SHELLS = {"", "sh", "bash", "console", "shell"}
ELSEWHERE = {"protocol.md": "talks to a running gateway through a client of NVIDIA's; tests/serving/web asks the same"}
"""Documents whose Python is only compiled, and why."""
OPERATORS = {">", ">>", "<", "|", "||", "&&", ";", "&"}
CARRIED_OUT = {"dlq ls", "ckpt ls", "ckpt verify", "release ls", "simulate", "purge"}
ROWS = re.compile(r"^\| `(\w+)\.(\w+)` \| ([^|]+) \|", re.MULTILINE)
ROOT_COMMAND: Any = typer.main.get_command(app)
USAGE_ERROR: Any = typer.BadParameter.__bases__[0]
"""Of click, or of the copy of click that typer brings."""


def blocks(document: Path, languages: set[str]) -> list[str]:
    return [code for language, code in FENCE.findall(document.read_text("utf-8")) if language in languages]


def stub() -> dict[str, Any]:
    """The names that a fragment in the README takes for granted: a tiny model, and its loss."""
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return {
        "StepGuard": StepGuard,
        "model": model,
        "optimizer": optimizer,
        "scheduler": torch.optim.lr_scheduler.ConstantLR(optimizer),
        "batches": [torch.ones(3, 2)] * 2,
        "loss_of": lambda net, batch: net(batch).square().mean(),
    }


WITH_PYTHON = [document for document in DOCUMENTS if blocks(document, {"python"})]


@pytest.mark.parametrize("document", WITH_PYTHON, ids=lambda path: path.name)
def test_the_python_of_a_document_runs_from_top_to_bottom(
    document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(1)
    names: dict[str, Any] = {"__name__": document.stem} | (stub() if document.parent == ROOT else {})
    for code in blocks(document, {"python"}):
        compiled = compile(ast.parse(code), document.name, "exec")
        if document.name not in ELSEWHERE:
            exec(compiled, names)  # noqa: S102 -- the point of it
    for words in commands(document):
        name, _ = found(words)
        if (tmp_path / "work").is_dir() and name in CARRIED_OUT:
            done = CliRunner().invoke(app, words[1:], catch_exceptions=False)
            assert done.exit_code == 0, f"{shlex.join(words)}: {done.output}"


def commands(document: Path) -> Iterator[list[str]]:
    """Every ``failsoft …`` of the document's shell blocks, as a shell would split it."""
    for code in blocks(document, SHELLS):
        for line in code.replace("\\\n", " ").splitlines():
            words = shlex.split(line.removeprefix("$ "), comments=True)
            end = next((place for place, word in enumerate(words) if word in OPERATORS), len(words))
            if words[:1] == ["failsoft"]:
                yield words[:end]


def found(words: list[str]) -> tuple[str, Any]:
    """The command that these words name, groups followed."""
    command: Any = ROOT_COMMAND
    name: list[str] = []
    for word in words[1:]:
        inner = getattr(command, "commands", {})
        if word not in inner:
            break
        name, command = [*name, word], inner[word]
    return " ".join(name), command


SHOWN = [(document.name, words) for document in DOCUMENTS for words in commands(document)]


@pytest.mark.parametrize(("document", "words"), SHOWN, ids=lambda value: " ".join(value)[:60])
def test_a_command_that_a_document_shows_is_taken_as_it_stands(document: str, words: list[str]) -> None:
    name, command = found(words)
    assert not hasattr(command, "commands"), f"{document}: {shlex.join(words)} names no command"
    rest = words[1 + len(name.split()) :]
    try:
        command.make_context(name, rest)
    except USAGE_ERROR as error:
        pytest.fail(f"{document}: {shlex.join(words)}: {error.format_message()}")


def named_in_prose() -> Iterator[tuple[str, str]]:
    for document in DOCUMENTS:
        for text in INLINE.findall(FENCE.sub("", document.read_text("utf-8"))):
            yield document.name, " ".join(text.split())


@pytest.mark.parametrize(("document", "text"), sorted(set(named_in_prose())))
def test_a_command_that_prose_names_exists_with_the_options_that_it_is_given(document: str, text: str) -> None:
    words = re.sub(r"\|\S+", "", text).replace("…", " ").split()
    name, command = found(words)
    options = {option.split("=")[0] for option in re.findall(r"(?<=\s)--[a-z][a-z-]*", text)}
    known = {opt for one in command.params for opt in [*one.opts, *one.secondary_opts]}
    assert name or words[1].isupper() or options, f"{document}: {text} names no command"
    assert options <= known | {"--help", "--install-completion", "--show-completion"}, f"{document}: {text}"


def test_bounds_that_the_page_of_limits_tells_are_those_of_the_code() -> None:
    known = {
        (there.name, setting.name): setting.default
        for there in all_settings([ROOT / "platform" / "failsoft", ROOT / "train_jobs"])
        for setting in there.settings
    }
    rows = ROWS.findall((ROOT / "docs" / "limits.md").read_text("utf-8"))
    assert len(rows) > 15
    for owner, name, told in rows:
        default = re.sub(r"^Field\(default=([^,]+),.*$", r"\1", known[owner, name])
        assert told.strip() == default.replace("_", ""), f"{owner}.{name}"


def test_each_document_links_to_files_that_are_there() -> None:
    for document in ROOT.glob("docs/*.md"):
        targets = re.findall(r"\]\((?!\w+:|#)([^)#\s]+)", document.read_text("utf-8"))
        assert [target for target in targets if not (document.parent / target).exists()] == [], document.name
