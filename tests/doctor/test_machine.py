"""What is looked at on this machine, and what is said of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from failsoft.artifacts.home import Home
from failsoft.doctor import machine
from failsoft.doctor.finding import Finding, Mark, exit_status
from failsoft.health.clock import ManualClock, SystemClock
from failsoft.health.ledger import Ledger, Side


def by_name(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.about: finding for finding in findings}


def test_only_what_is_bad_fails_a_script() -> None:
    said = {mark: Finding(about="x", mark=mark, said="so") for mark in Mark}
    assert exit_status([said[Mark.GOOD], said[Mark.REMARK], said[Mark.UNKNOWN]]) == 0
    assert exit_status([said[Mark.GOOD], said[Mark.BAD]]) == 1


def test_a_sound_machine_has_nothing_bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FAILSOFT_TOKEN", raising=False)
    home = Home(root=tmp_path / "home")
    found = [*machine.versions(), *machine.storage(home, clock=SystemClock()), *machine.tokens(home)]
    assert exit_status(found) == 0
    assert not (home.root / "operator-token").exists(), "looking makes no token"


def test_a_missing_package_is_bad_and_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "NEEDED", ("no-such-package",))
    found = by_name(machine.versions())["no-such-package"]
    assert (found.mark, "pip install" in found.mend) == (Mark.BAD, True)


def test_a_home_that_cannot_be_written_is_all_that_is_said_of_storage(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    (found,) = machine.storage(Home(root=tmp_path / "home"), clock=ManualClock())
    assert (found.about, found.mark) == ("home", Mark.BAD)


@pytest.mark.parametrize(("off_s", "mark"), [(-3600.0, Mark.REMARK), (0.0, Mark.GOOD), (86400.0, Mark.REMARK)])
def test_a_clock_that_differs_from_the_storages_is_remarked(tmp_path: Path, off_s: float, mark: Mark) -> None:
    clock = ManualClock(wall_s=SystemClock().wall_s() + off_s)
    assert by_name(machine.storage(Home(root=tmp_path), clock=clock))["clock"].mark is mark


def test_an_event_from_the_future_tells_of_a_wrong_clock(tmp_path: Path) -> None:
    home, now = Home(root=tmp_path), SystemClock()
    Ledger(home.ledger, ManualClock(wall_s=now.wall_s() + 600.0), side=Side.SERVING, subject="g").record("trip", "so")
    found = by_name(machine.storage(home, clock=now))["ledger"]
    assert found.mark is Mark.REMARK
    assert "in the future" in found.said


def test_a_ledger_that_others_can_read_is_remarked_with_its_mend(tmp_path: Path) -> None:
    home, clock = Home(root=tmp_path), SystemClock()
    Ledger(home.ledger, clock, side=Side.SERVING, subject="g").record("trip", "so")
    home.ledger.chmod(0o644)
    found = by_name(machine.storage(home, clock=clock))["ledger"]
    assert (found.mark, found.mend) == (Mark.REMARK, f"chmod 600 {home.ledger}")


def operator(home: Home) -> Finding:
    return by_name(machine.tokens(home))["operator token"]


def test_every_token_that_is_there_is_looked_at_and_none_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("FAILSOFT_TOKEN", "FAILSOFT_LABEL_TOKEN", "FAILSOFT_ALERT_TOKEN", "FAILSOFT_VIEWER_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    home = Home(root=tmp_path)
    assert list(by_name(machine.tokens(home))) == ["operator token"]
    assert list(tmp_path.iterdir()) == []
    for token in (home.operator_token, home.label_token, home.alert_token, home.viewer_token):
        token()
    (tmp_path / "viewer-token").chmod(0o644)
    found = by_name(machine.tokens(home))
    assert {name: one.mark for name, one in found.items()} == {
        "operator token": Mark.GOOD,
        "label token": Mark.GOOD,
        "alert token": Mark.GOOD,
        "viewer token": Mark.BAD,
    }
    assert found["viewer token"].mend == f"chmod 600 {tmp_path / 'viewer-token'}"


def test_a_token_that_others_can_read_or_that_is_too_short_is_bad_and_never_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FAILSOFT_TOKEN", raising=False)
    home = Home(root=tmp_path)
    secret = home.operator_token()
    assert operator(home).mark is Mark.GOOD
    (tmp_path / "operator-token").chmod(0o640)
    found = operator(home)
    assert (found.mark, found.mend) == (Mark.BAD, f"chmod 600 {tmp_path / 'operator-token'}")
    monkeypatch.setenv("FAILSOFT_TOKEN", "short")
    assert operator(home).mend == "unset FAILSOFT_TOKEN"
    assert secret not in str(operator(home)) + str(found)


def test_little_room_is_remarked_and_no_shared_memory_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine.host_memory(tmp_path / "none").mark is Mark.REMARK
    monkeypatch.setattr(machine, "LITTLE_SHARED_BYTES", 1 << 62)
    assert machine.host_memory(tmp_path).mark is Mark.REMARK
    monkeypatch.setattr(machine, "LITTLE_ROOM_BYTES", 1 << 62)
    found = by_name(machine.storage(Home(root=tmp_path), clock=SystemClock()))["room"]
    assert (found.mark, "gc" in found.mend) == (Mark.REMARK, True)
    assert os.listdir(tmp_path) == ["serving"], "what was tried is removed"


def test_a_ledger_that_can_not_be_read_is_bad_and_ends_no_look_at_the_rest(tmp_path: Path) -> None:
    home = Home(root=tmp_path)
    home.ledger.mkdir()
    found = by_name(machine.storage(home, clock=SystemClock()))
    assert (found["ledger"].mark, "can't be read" in found["ledger"].said) == (Mark.BAD, True)
    assert {"home", "room", "clock"} <= found.keys()
