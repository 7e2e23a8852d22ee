"""What every command does with names and texts that were not meant for it: one line, an exit status, no traceback."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from failsoft.artifacts.home import Home, run_names
from failsoft.cli.app import app
from failsoft.cli.command_page import all_commands
from failsoft.cli.main import main, with_mend
from failsoft.errors import ConfigError, DropRateError, FailsoftError
from tests.test_cli_letters import bury

COMMANDS = [
    ("dlq", "ls"),
    ("runs",),
    ("goodput",),
    ("verify",),
    ("ckpt", "ls"),
    ("ckpt", "prune"),
    ("preempt",),
]


def told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    monkeypatch.setattr("sys.argv", ["failsoft", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0), capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS)
def test_an_error_is_one_line_and_shows_brackets_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    home = tmp_path / "a home whose path is rather long, so that the sentence is wider than any terminal" / "[red]"
    bury(home, "first", 3)
    name = "[bold]x[red]"
    status, said = told(monkeypatch, capsys, *command, name, "--home", str(home))
    assert status == 1
    assert (said.count("\n"), name in said, "[red]" in said) == (1, True, True)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", ["..", ".", "../runs/first", "first/dead_letters", ""])
def test_a_name_that_leads_elsewhere_is_no_run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: tuple[str, ...],
    name: str,
) -> None:
    bury(tmp_path, "first", 3)
    status, said = told(monkeypatch, capsys, *command, name, "--home", str(tmp_path))
    assert (status, said.count("\n")) == (1, 1)
    assert repr(name) in said


@pytest.mark.parametrize("command", [("dlq", "ls"), ("dlq", "requeue"), ("runs",), ("goodput",)])
def test_a_run_whose_name_looks_like_markup_is_shown_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    name = "[bold]x[red]"
    bury(tmp_path, name, 3)
    position = ("3",) if command[-1] == "requeue" else ()
    monkeypatch.setattr("sys.argv", ["failsoft", *command, name, *position, "--home", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert name in capsys.readouterr().out


def test_hidden_folders_of_other_programs_are_no_runs(tmp_path: Path) -> None:
    for name in (".snapshot", "second", "first"):
        (tmp_path / name).mkdir()
    assert run_names(tmp_path) == ["first", "second"]
    assert run_names(tmp_path / "absent") == []


def test_a_home_gives_no_folder_outside_its_runs(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="it names a folder"):
        Home(root=tmp_path).run("../elsewhere")


def test_every_kind_of_error_knows_a_next_command_and_it_is_one() -> None:
    kinds = [FailsoftError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    known = {one.name for one in all_commands(app)}
    named = [words for kind in kinds for words in re.findall(r"failsoft ([a-z]+(?: [a-z]+)?)", kind.mend)]
    assert len(kinds) > 25
    assert [words for words in named if words not in known and words.split()[0] not in known] == []


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (DropRateError("11 of 900 batches were refused"), "11 of 900 batches were refused; next: failsoft dlq ls RUN"),
        (FailsoftError("run first is gone"), "run first is gone; next: failsoft doctor"),
        (ConfigError("window is 0; use at least 1"), "window is 0; use at least 1"),
        (ConfigError("no run 'x'. See: failsoft runs"), "no run 'x'. See: failsoft runs"),
        (PermissionError(13, "Permission denied", "/x"), "[Errno 13] Permission denied: '/x'; next: failsoft doctor"),
    ],
)
def test_an_error_that_names_no_mend_gets_that_of_its_kind(error: FailsoftError | OSError, said: str) -> None:
    assert with_mend(error) == said
