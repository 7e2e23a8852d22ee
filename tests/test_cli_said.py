"""What holds for every command: an answer for programs, exit codes in writing, names that a shell completes."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from failsoft.cli import main as _main  # noqa: F401 -- hangs every command on the app
from failsoft.cli.app import app
from failsoft.cli.command_page import EXITS, Command, all_commands, as_markdown
from failsoft.cli.said import print_json
from failsoft.errors import FailsoftError
from tests.incidents.made import Told
from tests.test_cli_letters import bury

ROOT = Path(__file__).parents[1]
COMMANDS = {one.name: one for one in all_commands(app)}
NO_ANSWER = {
    "demo": "shows a film; its numbers are in summary.json",
    "serve": "runs until Ctrl-C; failsoft status --json answers meanwhile",
    "alerts run": "runs until Ctrl-C",
}
"""Commands without --json, and why."""
AWAY = "http://127.0.0.1:9"
ON_A_FOLDER = {
    "commands": (),
    "doctor": ("--port", "9"),
    "events": (),
    "incidents": (),
    "metrics": (),
    "plan": ("--mtbf", "30d", "--checkpoint-cost", "0.5s"),
    "preempt": ("first",),
    "purge": (),
    "report": ("incident-last",),
    "runs": (),
    "settings": ("deadline_ms",),
    "simulate": ("--hours", "0.1"),
    "goodput": ("first",),
    "dlq ls": ("first",),
    "release ls": (),
    "release gc": ("--dry-run",),
    "alerts check": (),
}
"""Arguments with which a command answers on a folder that is no more than one run and one incident."""
LINES = {"events"}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    bury(tmp_path, "first", 3)
    Told(tmp_path).whole_incident()
    return tmp_path


def typed(name: str, *arguments: str, home: Path | None = None) -> Result:
    command = COMMANDS[name]
    has_home = any(one.name == "--home" for one in command.parameters)
    where = ("--home", str(home)) if home is not None and has_home else ()
    return CliRunner().invoke(app, [*name.split(), *arguments, *where])


@pytest.mark.parametrize("command", COMMANDS.values(), ids=lambda one: one.name)
def test_every_command_answers_programs_or_says_here_why_not(command: Command) -> None:
    assert command.has_json != (command.name in NO_ANSWER)


@pytest.mark.parametrize("name", ON_A_FOLDER)
def test_with_json_nothing_but_json_is_on_standard_output(name: str, home: Path) -> None:
    done = typed(name, *ON_A_FOLDER[name], "--json", home=home)
    assert done.exit_code in {0, *EXITS.get(name, {})}, done.output
    for text in done.stdout.splitlines() if name in LINES else [done.stdout]:
        json.loads(text, parse_constant=pytest.fail)


@pytest.mark.parametrize("command", COMMANDS.values(), ids=lambda one: one.name)
def test_every_command_says_what_it_does_and_every_option_what_it_means(command: Command) -> None:
    assert command.first_sentence.endswith((".", "?"))
    assert [one.name for one in command.parameters if not one.says.strip()] == []


def test_a_number_that_is_none_is_null_and_odd_words_are_written_in_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": math.nan, "b": [math.inf, 1.5], 3: "half \udcff é", "p": Path("x")})
    said = capsys.readouterr().out
    assert said.isascii()
    assert json.loads(said) == {"a": None, "b": [None, 1.5], "3": "half \udcff é", "p": "x"}


def test_the_checked_in_page_is_what_the_code_says() -> None:
    page = (ROOT / "docs" / "cli.md").read_text("utf-8")
    assert page == as_markdown(list(COMMANDS.values())), "run: failsoft commands --markdown > docs/cli.md"


def test_every_exit_code_that_an_error_has_is_written_down() -> None:
    kinds = [FailsoftError]
    for found in kinds:
        kinds += found.__subclasses__()
    known = {0, 1, 2, 130} | {code for own in EXITS.values() for code in own}
    assert {kind.exit_status for kind in kinds} <= known
    assert EXITS.keys() <= COMMANDS.keys()


def completed(home: Path, *words: str) -> list[str]:
    """What bash is offered for the last word."""
    line = {"COMP_WORDS": " ".join(["failsoft", *words]), "COMP_CWORD": str(len(words))}
    environment = os.environ | line | {"_FAILSOFT_COMPLETE": "complete_bash", "FAILSOFT_HOME": str(home)}
    command = [str(Path(sys.executable).with_name("failsoft"))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.split()


def test_a_shell_completes_the_names_of_runs_and_incidents_of_the_home(home: Path) -> None:
    assert completed(home, "runs", "fi") == ["first"]
    assert completed(home, "report", "i") == ["incident-12"]


@pytest.mark.parametrize(
    ("function", "names"),
    [
        ("complete_run", ["first"]),
        ("complete_release", ["r-1", "r-2"]),
        ("complete_incident", ["incident-12"]),
        ("complete_run_or_incident", ["first", "incident-12"]),
    ],
)
def test_what_is_completed_is_what_is_there_and_an_empty_home_is_no_trouble(
    home: Path, function: str, names: list[str]
) -> None:
    from failsoft.cli import completion

    class Line:
        params = {"home": home}  # noqa: RUF012 -- as a parsed line has it

    for name in ("r-1", "r-2", "quarantine"):
        (home / "releases" / name).mkdir(parents=True)
    for name in ("r-1", "r-2"):
        (home / "releases" / name / "manifest.json").touch()
    assert getattr(completion, function)(Line, "") == names
    Line.params = {"home": home / "none"}
    assert getattr(completion, function)(Line, "") == []


def test_a_gateway_that_is_away_is_an_error_of_one_line_and_no_json(home: Path) -> None:
    done = typed("status", "--json", "--url", AWAY, home=home)
    assert isinstance(done.exception, FailsoftError)
    assert done.stdout == ""
