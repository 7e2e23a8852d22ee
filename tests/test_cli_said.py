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

from failsoft.artifacts.home import Home
from failsoft.artifacts.store import ArtifactStore
from failsoft.cli import main as _main  # noqa: F401 -- hangs every command on the app
from failsoft.cli import releases, steer
from failsoft.cli.app import app
from failsoft.cli.command_page import EXITS, Command, all_commands, as_markdown
from failsoft.cli.said import print_json
from failsoft.errors import FailsoftError
from failsoft.health.clock import SystemClock
from failsoft.release.shelf import Pins
from tests.incidents.made import Told
from tests.test_cli_letters import bury
from tests.test_cli_steer import FakeGateway

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
    "dlq show": ("first", "3"),
    "dlq export": ("first", "--out", "{home}/letters.jsonl"),
    "dlq requeue": ("first", "3"),
    "release pin": ("r-1", "--why", "kept"),
    "release unpin": ("r-1",),
    "release new-key": ("{home}/key",),
    "fetch": ("--release", "r-1"),
    "release send": ("r-1", "--to", "file://{home}/copies"),
    "ckpt ls": ("first",),
    "ckpt verify": ("first",),
    "ckpt prune": ("first",),
    "release ls": (),
    "release gc": ("--dry-run",),
    "alerts check": (),
}
"""Arguments with which a command answers on a folder that is no more than one run and one incident."""
AT_A_GATEWAY = {
    "status": (),
    "degrade": ("--why", "x"),
    "restore": ("--why", "x"),
    "release abort": ("r-1", "--why", "x"),
    "release hold": ("r-1", "--why", "x"),
    "release resume": ("r-1", "--why", "x"),
    "release advance": ("r-1", "--why", "x"),
    "release promote": ("r-1",),
    "release rollback": ("--why", "x"),
}
"""Those that ask a gateway."""
ELSEWHERE = {
    "gate": "tests/test_cli_releases.py",
    "release show": "tests/test_cli_releases.py",
    "verify": "tests/test_cli_runs.py",
    "ckpt show": "tests/test_cli_checkpoints.py",
    "ckpt diff": "tests/test_cli_checkpoints.py",
    "ckpt now": "tests/training/survival/test_saving_asked.py",
    "dlq replay": "tests/train_jobs/test_letters.py",
    "alerts test": "tests/test_cli_alerts.py",
    "drill": "tests/test_cli_drill.py",
    "fleet": "tests/test_cli_fleet.py",
}
"""Those that need a trained model or somebody who answers; the file that asks them for JSON."""
IN_DRILLS = {
    "train": "needs Ray",
    "preflight": "needs Ray",
    "release publish": "trains and gates a candidate",
    "release sign": "wants a key in the environment",
    "ckpt fetch": "brings what ckpt ls lists",
    "replay": "loads a release",
}
"""Those of which only the form of the answer, ``said.answer``, is tested here, and why."""
LINES = {"events"}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    bury(tmp_path, "first", 3)
    Told(tmp_path).whole_incident()
    clock = SystemClock()
    for kind, name, folder in (("release", "r-1", "releases"), ("checkpoint", "c-1", "runs/first/checkpoints")):
        store = ArtifactStore(tmp_path / folder, clock, kind=kind)
        store.publish(name, fill, meta={"position": 1, "loss": 0.5})
    Pins(Home(root=tmp_path)).pin("r-1", "for a while")
    return tmp_path


def fill(aside: Path) -> None:
    (aside / "x").write_text("y")


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
    words = [word.format(home=home) for word in ON_A_FOLDER[name]]
    done = typed(name, *words, "--json", home=home)
    assert done.exit_code in {0, *EXITS.get(name, {})}, (done.output, done.exception)
    for text in done.stdout.splitlines() if name in LINES else [done.stdout]:
        json.loads(text, parse_constant=pytest.fail)


@pytest.mark.parametrize("name", AT_A_GATEWAY)
def test_what_a_gateway_answers_is_handed_on_as_json_alone(
    name: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeGateway(monkeypatch)
    monkeypatch.setattr(releases, "GatewayClient", vars(steer)["GatewayClient"])
    done = typed(name, *AT_A_GATEWAY[name], "--json", home=home)
    assert done.exit_code == 0, (done.output, done.exception)
    assert "plan" in json.loads(done.stdout) or "epoch" in json.loads(done.stdout)


def test_no_command_s_json_is_forgotten() -> None:
    known = NO_ANSWER.keys() | ON_A_FOLDER.keys() | AT_A_GATEWAY.keys() | ELSEWHERE.keys() | IN_DRILLS.keys()
    assert known == COMMANDS.keys()
    for name, path in ELSEWHERE.items():
        text = (ROOT / path).read_text("utf-8")
        assert "json" in text, path
        assert f'"{name.split()[-1]}"' in text, f"{path} does not ask {name}"


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
        ("complete_release", ["r-1", "r-2", "r-3"]),
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

    for name in ("r-2", "r-3", "quarantine"):
        (home / "releases" / name).mkdir(parents=True)
    for name in ("r-2", "r-3"):
        (home / "releases" / name / "manifest.json").touch()
    assert getattr(completion, function)(Line, "") == names
    Line.params = {"home": home / "none"}
    assert getattr(completion, function)(Line, "") == []


def test_a_gateway_that_is_away_is_an_error_of_one_line_and_no_json(home: Path) -> None:
    done = typed("status", "--json", "--url", AWAY, home=home)
    assert isinstance(done.exception, FailsoftError)
    assert done.stdout == ""
