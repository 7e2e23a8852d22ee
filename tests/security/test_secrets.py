"""A token that is planted everywhere stands in nothing that a person, a log or another program is shown."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from failsoft.alerts.settings import read_settings
from failsoft.artifacts.home import (
    ALERT_TOKEN_VARIABLE,
    LABEL_TOKEN_VARIABLE,
    TOKEN_VARIABLE,
    VIEWER_TOKEN_VARIABLE,
    Home,
)
from failsoft.artifacts.signing_keys import make_signing
from failsoft.cli import main as _commands  # noqa: F401 -- importing it hangs the commands on the app
from failsoft.cli.app import app
from failsoft.errors import FailsoftError
from failsoft.health.clock import ManualClock
from failsoft.health.ledger import Ledger, Side
from failsoft.remote import GatewayClient
from failsoft.serving.web.auth import bearer_guard
from tests.serving.web.test_routes import FakeFront, client

SECRET = "planted-where-nobody-may-see-it-7f3a"
ALL = (TOKEN_VARIABLE, LABEL_TOKEN_VARIABLE, ALERT_TOKEN_VARIABLE, VIEWER_TOKEN_VARIABLE, "FAILSOFT_SIGNING_KEY")
COMMANDS = [
    ["doctor", "--json"],
    ["doctor"],
    ["settings"],
    ["settings", "--json"],
    ["events", "--json"],
    ["events"],
    ["status", "--url", "http://127.0.0.1:9"],
    ["degrade", "--url", "http://127.0.0.1:9", "--why", "w"],
    ["degrade", "--url", "not an address", "--why", "w"],
    ["release", "ls"],
    ["incidents", "--json"],
    ["runs", "--json"],
    ["purge"],
    ["alerts", "test"],
]


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with the secret in each file and each variable that takes one."""
    for name in ALL:
        monkeypatch.setenv(name, SECRET)
    for whose in ("operator", "label", "alert", "viewer"):
        path = tmp_path / f"{whose}-token"
        path.write_text(SECRET)
        path.chmod(0o600)
    (tmp_path / "alerts.toml").write_text(f'[[send]]\nname = "pager"\nto = "https://127.0.0.1:9/{SECRET}"\n')
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_shows_it(planted: Path, command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAILSOFT_HOME", str(planted))
    result = CliRunner().invoke(app, command)
    assert "No such command" not in result.output
    assert SECRET not in result.output + repr(result.exception)


def test_nothing_that_is_written_below_the_home_holds_it_but_the_files_that_are_for_it(
    planted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAILSOFT_HOME", str(planted))
    for command in (["doctor", "--json"], ["degrade", "--url", "http://127.0.0.1:9", "--why", "w"], ["alerts", "test"]):
        CliRunner().invoke(app, command)
    holding = {
        path.name for path in planted.rglob("*") if path.is_file() and SECRET in path.read_text("utf-8", "replace")
    }
    assert holding == {"operator-token", "label-token", "alert-token", "viewer-token", "alerts.toml"}


def test_settings_that_are_refused_do_not_repeat_an_address_that_is_a_secret(planted: Path) -> None:
    (planted / "alerts.toml").write_text(f'[[send]]\nname = "pager"\nto = "http://example.org/{SECRET}"\n')
    with pytest.raises(FailsoftError, match="pager") as refused:
        read_settings(planted).send[0].address()
    assert SECRET not in str(refused.value)


def test_what_holds_a_token_does_not_show_it(planted: Path) -> None:
    home = Home(root=planted)
    guard = bearer_guard(home.operator_tokens().digests)
    with GatewayClient("http://127.0.0.1:9", token=home.operator_token()) as gateway:
        assert (
            SECRET not in f"{home!r} {home.operator_tokens()!r} {guard!r} {gateway!r} {vars(home.operator_tokens())!r}"
        )


@pytest.mark.anyio
async def test_neither_refusals_nor_the_log_repeat_what_was_sent_as_a_token(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="failsoft")
    wrong = {"Authorization": f"Bearer {SECRET}"}
    async with client(FakeFront()) as http:
        for _ in range(12):
            answer = await http.post("/v1/degrade", json={"why": "w"}, headers=wrong)
            assert SECRET not in answer.text + str(answer.headers)
    assert SECRET not in caplog.text


def test_files_that_hold_secrets_or_events_are_their_owners_alone_under_any_umask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    before = os.umask(0)
    try:
        home = Home(root=tmp_path)
        home.operator_token()
        Ledger(home.ledger, ManualClock(), side=Side.SERVING, subject="g").record("trip", "w")
        make_signing(tmp_path / "key")
    finally:
        os.umask(before)
    assert {path.name: oct(path.stat().st_mode & 0o777) for path in tmp_path.iterdir()} == {
        "operator-token": "0o600",
        "ledger.jsonl": "0o600",
        "key": "0o600",
    }
