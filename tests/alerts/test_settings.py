"""What ``alerts.toml`` may say, and how what it can't mean is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from failsoft.alerts.settings import WANT_A_PERSON, Action, Form, read_settings
from failsoft.errors import ConfigError
from tests.alerts.made import target

WHOLE = """
[[send]]
name = "on-call"
to = "env:HOOK"
form = "slack"
again_after = "90s"

[[receive]]
alert = "DropRate"
action = "stop_run"

[[receive]]
alert = "Burn"
action = "degrade"
for = "2h"
"""


def test_a_whole_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "alerts.toml").write_text(WHOLE)
    settings = read_settings(tmp_path)
    (told,) = settings.send
    assert (told.form, told.again_after_s, frozenset(told.kinds)) == (Form.SLACK, 90.0, WANT_A_PERSON)
    assert [(rule.alert, rule.action, rule.for_s) for rule in settings.receive] == [
        ("DropRate", Action.STOP_RUN, 1800.0),
        ("Burn", Action.DEGRADE, 7200.0),
    ]


def test_without_a_file_nobody_is_told_and_nothing_is_allowed(tmp_path: Path) -> None:
    settings = read_settings(tmp_path)
    assert (settings.send, settings.receive) == ((), ())


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ("[[send]\n", "can't be read"),
        ('[[send]]\nname = "a b"\nto = "https://x"\n', "send.0.name"),
        ('[[send]]\nname = "a"\nto = "https://x"\ncolour = 1\n', "send.0.colour"),
        ('[[send]]\nname = "a"\nto = "https://x"\nagain_after = "soon"\n', "send.0.again_after"),
        ('[[send]]\nname = "a"\nto = "https://x"\n' * 2, "has a twice"),
        ('[[receive]]\nalert = "A"\naction = "delete"\n', "receive.0.action"),
        ('[[receive]]\nalert = "A"\naction = "stop_run"\nrun = "../x"\n', "../x"),
        ('[[receive]]\nalert = "A"\naction = "degrade"\n' * 2, "has A twice"),
        ('[[receive]]\nalert = "A"\naction = "degrade"\nfor = "0s"\n', "for is '0s'"),
        ('[[receive]]\nalert = "A"\naction = "degrade"\nfor = "31d"\n', "at most 30d"),
        ('[[receive]]\nalert = "A"\naction = "degrade"\nrun = "first"\n', "no use for 'run'"),
        ('[[receive]]\nalert = "A"\naction = "stop_run"\nfor = "30m"\n', "no use for 'for'"),
        ('[[send]]\nname = "a"\nto = "https://x"\nkinds = []\n', "send.0.kinds"),
        ('[[send]]\nname = "a"\nto = "https://x"\nkinds = ["Gateway tripped"]\n', "send.0.kinds"),
        ('[[send]]\nname = "a"\nto = "https://x"\nsides = []\n', "send.0.sides"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_place(tmp_path: Path, body: str, named: str) -> None:
    (tmp_path / "alerts.toml").write_text(body)
    with pytest.raises(ConfigError) as caught:
        read_settings(tmp_path)
    assert named in str(caught.value)


def test_an_address_is_in_no_error(tmp_path: Path) -> None:
    (tmp_path / "alerts.toml").write_text('[[send]]\nname = "a"\nto = ["https://x/SECRET"]\n')
    with pytest.raises(ConfigError) as caught:
        read_settings(tmp_path)
    assert "SECRET" not in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        target(to="http://hooks.example.org/SECRET").address()
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize("to", ["https://hooks.example.org/x", "http://127.0.0.1:9/x", "http://localhost/x"])
def test_an_address_keeps_what_is_sent_to_itself(to: str) -> None:
    assert target(to=to).address() == to


@pytest.mark.parametrize("to", ["http://example.org", "ftp://example.org", "example.org", "file:///etc/passwd"])
def test_one_that_does_not_is_refused(to: str) -> None:
    with pytest.raises(ConfigError, match="use https"):
        target(to=to).address()


@pytest.mark.parametrize(
    "to", ["https://x.invalid/S3CRET\n", "https://[::1", "https://", "https://x:99999999/S3CRET", "xoxb-S3CRET", "S3:x"]
)
def test_one_that_nothing_can_be_sent_to_is_refused_and_nothing_of_it_is_said(to: str) -> None:
    with pytest.raises(ConfigError, match="use https") as caught:
        target(to=to).address()
    assert "S3" not in str(caught.value)


def test_an_address_may_lie_in_the_environment() -> None:
    told = target(to="env:HOOK")
    assert told.address({"HOOK": "https://x"}) == "https://x"
    with pytest.raises(ConfigError, match=r"\$HOOK is not set"):
        told.address({})
