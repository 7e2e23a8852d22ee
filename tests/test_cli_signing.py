"""A key is made, trusted, changed and retired from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from failsoft.artifacts.home import Home
from failsoft.artifacts.signing import ACCEPTED_VARIABLE, FILE_VARIABLE, KEY_VARIABLE, TRUSTED_VARIABLE
from failsoft.cli import signing as _signing  # noqa: F401 -- hangs its commands on the app
from failsoft.cli.app import app
from failsoft.errors import ConfigError
from failsoft.health.clock import SystemClock
from failsoft.health.ledger import read_ledger


def typed(*words: str) -> Result:
    return CliRunner().invoke(app, ["release", *words])


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """Two releases signed by an old key."""
    for variable in (KEY_VARIABLE, ACCEPTED_VARIABLE):
        monkeypatch.delenv(variable, raising=False)
    line = typed("new-key", str(tmp_path / "old"), "--what", "2025").stdout
    (tmp_path / "trusted").write_text(line)
    monkeypatch.setenv(FILE_VARIABLE, str(tmp_path / "old"))
    monkeypatch.setenv(TRUSTED_VARIABLE, str(tmp_path / "trusted"))
    made = Home.find(tmp_path / "home")
    for name in ("r-1", "r-2"):
        made.releases(SystemClock()).publish(name, lambda folder: (folder / "x").touch(), meta={})
    return made


def test_all_releases_are_signed_with_the_new_key_before_the_old_one_is_retired(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = (tmp_path / "trusted").read_text(), typed("new-key", str(tmp_path / "new")).stdout
    (tmp_path / "trusted").write_text(old + new)
    monkeypatch.setenv(FILE_VARIABLE, str(tmp_path / "new"))
    said = typed("sign", "--all", "--why", "a year is over", "--home", str(home.root))
    assert (said.exit_code, said.stdout.splitlines()) == (0, ["r-1 is signed", "r-2 is signed"])
    (tmp_path / "trusted").write_text(f"retired {old}{new}")
    assert [artifact.name for artifact in home.releases(SystemClock()).listing()] == ["r-1", "r-2"]
    signed = [event for event in read_ledger(home.ledger).events if event.kind == "release_signed"]
    assert [(event.data["release"], event.why) for event in signed] == [
        ("r-1", "a year is over"),
        ("r-2", "a year is over"),
    ]


def test_what_nobody_trusted_has_signed_is_named_and_left_and_signed_for_whoever_vouches(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = typed("new-key", str(tmp_path / "new")).stdout
    (tmp_path / "trusted").write_text(new)
    monkeypatch.setenv(FILE_VARIABLE, str(tmp_path / "new"))
    said = typed("sign", "--all", "--why", "x", "--home", str(home.root)).stdout
    assert "r-1 is not signed" in said.replace("\n", " ")
    assert home.releases(SystemClock()).listing() == []
    assert typed("sign", "r-1", "--vouch", "--why", "I made it", "--home", str(home.root)).exit_code == 0
    assert [artifact.name for artifact in home.releases(SystemClock()).listing()] == ["r-1"]


@pytest.mark.parametrize("words", [(), ("r-1", "--all"), ("--all", "--vouch")])
def test_an_order_that_could_mean_two_things_is_refused(home: Home, words: tuple[str, ...]) -> None:
    assert isinstance(typed("sign", *words, "--why", "x", "--home", str(home.root)).exception, ConfigError)
