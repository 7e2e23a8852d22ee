"""One folder for everything, and a secret that only its owner reads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from failsoft.artifacts.home import HOME_VARIABLE, TOKEN_VARIABLE, VIEWER_TOKEN_VARIABLE, Home
from failsoft.errors import ConfigError
from failsoft.health.clock import ManualClock
from tests.conftest import ROOT


@pytest.fixture(autouse=True)
def _no_settings_of_whoever_runs_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(HOME_VARIABLE, raising=False)
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)


def test_a_given_folder_comes_before_the_environment_and_that_before_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert Home.find().root == tmp_path / ".failsoft"
    monkeypatch.setenv(HOME_VARIABLE, "")
    assert Home.find().root == tmp_path / ".failsoft"
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "env"))
    assert Home.find().root == tmp_path / "env"
    assert Home.find(Path("given")).root == tmp_path / "given"


def test_nothing_is_made_before_it_is_needed(tmp_path: Path) -> None:
    home = Home.find(tmp_path / "home")
    assert home.releases(ManualClock()).newest() is None
    assert home.checkpoints("run", ManualClock()).listing() == []
    assert not home.root.exists()


def test_the_token_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    home = Home.find(tmp_path)
    token = home.operator_token()
    assert home.operator_token() == token
    assert len(token) >= 24
    assert (tmp_path / "operator-token").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["operator-token"]


def test_a_token_that_others_can_read_is_refused(tmp_path: Path) -> None:
    home = Home.find(tmp_path)
    home.operator_token()
    (tmp_path / "operator-token").chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        home.operator_token()


def test_the_environment_may_give_the_token_but_not_a_guessable_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "x" * 16)
    assert Home.find(tmp_path).operator_token() == "x" * 16
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv(TOKEN_VARIABLE, "short")
    with pytest.raises(ConfigError, match="5 characters"):
        Home.find(tmp_path).operator_token()


def test_a_line_break_after_a_token_in_the_environment_locks_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "x" * 16 + "\n")
    assert Home.find(tmp_path).operator_token() == "x" * 16
    monkeypatch.setenv(TOKEN_VARIABLE, " " * 16)
    with pytest.raises(ConfigError, match="0 characters"):
        Home.find(tmp_path).operator_token()


ASK_FOR_TOKEN = """
import sys, pathlib
from failsoft.artifacts.home import Home
print(Home.find(pathlib.Path(sys.argv[1])).operator_token())
"""


def test_processes_that_start_together_agree_on_one_token(tmp_path: Path) -> None:
    """Two gateways with two tokens would refuse every second order."""
    command = [sys.executable, "-c", ASK_FOR_TOKEN, str(tmp_path)]
    environment = {"PYTHONPATH": str(ROOT / "platform")}
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(4)]
    tokens = {process.communicate(timeout=60)[0].strip() for process in running}
    assert tokens == {(tmp_path / "operator-token").read_text()}


def test_a_token_that_another_process_made_in_between_is_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, late = Home.find(tmp_path), tmp_path / "operator-token"
    theirs = home.operator_token()
    monkeypatch.setattr(Path, "exists", lambda path: path != late)
    assert home.operator_token() == theirs


def test_what_reads_a_gateway_is_the_viewers_token_else_the_operators_and_none_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home.find(tmp_path)
    assert home.reader_token() is None
    assert list(tmp_path.iterdir()) == []
    operator = home.operator_token()
    assert home.reader_token() == operator
    (tmp_path / "viewer-token").write_text(f"sha256:{'0' * 64}\n")
    (tmp_path / "viewer-token").chmod(0o600)
    assert home.reader_token() == operator, "a digest can't be sent"
    monkeypatch.setenv(VIEWER_TOKEN_VARIABLE, "v" * 32)
    assert home.reader_token() == "v" * 32
