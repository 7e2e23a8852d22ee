"""What ``failsoft events`` and ``failsoft doctor`` print."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from failsoft.cli import doctor as _doctor  # noqa: F401 -- hangs its command on the app
from failsoft.cli import events as events_module
from failsoft.cli.app import app
from failsoft.cli.events import Wanted, moment_s, newest
from failsoft.errors import ConfigError
from failsoft.health.clock import ManualClock, SystemClock
from failsoft.health.ledger import Event, Ledger, Side, parse_event, read_ledger
from failsoft.health.ledger_files import put_away


def fill(home: Path) -> None:
    clock = ManualClock(wall_s=SystemClock().wall_s() - 3600.0)
    serving = Ledger(home / "ledger.jsonl", clock, side=Side.SERVING, subject="gateway-1")
    training = Ledger(home / "ledger.jsonl", clock, side=Side.TRAINING, subject="first")
    serving.record("trip", "12 bad of [40]")
    training.record("rollback", "five refusals in a row")
    clock.advance(3590.0)
    serving.record("stage", "CANARY → RAMP_20")


def failsoft(home: Path, *arguments: str) -> str:
    done = CliRunner().invoke(app, [*arguments, "--home", str(home)])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize(
    ("asked", "kinds"),
    [
        ((), ["trip", "rollback", "stage"]),
        (("--since", "1m"), ["stage"]),
        (("--since", "2020-01-01"), ["trip", "rollback", "stage"]),
        (("--side", "serving"), ["trip", "stage"]),
        (("--kind", "rollback"), ["rollback"]),
        (("--subject", "first"), ["rollback"]),
        (("--text", "ramp_20"), ["stage"]),
        (("--last", "2"), ["rollback", "stage"]),
        (("--last", "0"), []),
    ],
)
def test_only_the_events_that_were_asked_for_are_printed(
    tmp_path: Path, asked: tuple[str, ...], kinds: list[str]
) -> None:
    fill(tmp_path)
    lines = failsoft(tmp_path, "events", "--json", *asked).splitlines()
    assert [json.loads(line)["kind"] for line in lines] == kinds
    words = failsoft(tmp_path, "events", *asked)
    assert [kind for kind in ("trip", "rollback", "stage") if f"{kind} " in words] == kinds


def test_brackets_in_a_reason_are_printed_as_they_are(tmp_path: Path) -> None:
    fill(tmp_path)
    assert "12 bad of [40]" in failsoft(tmp_path, "events")


def test_nothing_found_is_said(tmp_path: Path) -> None:
    assert "no such event in" in failsoft(tmp_path, "events", "--kind", "trip")


def test_a_moment_that_is_none_is_refused_in_words() -> None:
    assert moment_s("90s", now_s=100.0) == 10.0
    assert moment_s("1970-01-01T00:01:00+00:00", now_s=0.0) == 60.0
    with pytest.raises(ConfigError, match="yesterday"):
        moment_s("yesterday", now_s=0.0)


def test_who_follows_gets_what_comes_and_leaves_with_ctrl_c(tmp_path: Path) -> None:
    fill(tmp_path)
    command = [sys.executable, "-m", "failsoft.cli.main", "events", "--follow", "--json", "--home", str(tmp_path)]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        first = [json.loads(process.stdout.readline())["kind"] for _ in range(3)]
        clock = SystemClock()
        Ledger(tmp_path / "ledger.jsonl", clock, side=Side.RELEASE, subject="r").record("published", "new")
        assert json.loads(process.stdout.readline())["kind"] == "published"
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(30.0) == 0
        finally:
            process.kill()
    assert first == ["trip", "rollback", "stage"]


def test_the_doctor_prints_each_finding_and_its_json_has_the_same(tmp_path: Path) -> None:
    said = CliRunner().invoke(app, ["doctor", "--json", "--home", str(tmp_path)])
    findings = json.loads(said.output)
    assert {"python", "home", "operator token", "gateway", "ray"} <= {finding["about"] for finding in findings}
    assert said.exit_code == int(any(finding["mark"] == "bad" for finding in findings))


def test_words_that_a_terminal_would_obey_or_cannot_write_are_shown_in_their_code(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl", SystemClock(), side=Side.SERVING, subject="half \udcff")
    ledger.record("trip", "\x1b[2J \x1b]0;mine\x07 \u202egnp")
    said = failsoft(tmp_path, "events")
    assert "half \\udcff: \\u001b[2J \\u001b]0;mine\\u0007 \\u202egnp" in said


@pytest.mark.parametrize("text", ["Zürich", "ZÜRICH", 'says "no"', "C:\\temp", "😀 ok", '"kind":"trip"', "\\u00fc"])
def test_words_are_found_as_people_read_them_and_as_the_line_has_them(tmp_path: Path, text: str) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl", SystemClock(), side=Side.SERVING, subject="g")
    ledger.record("trip", 'Zürich says "no"', where="C:\\temp", mood="😀 ok")
    ledger.record("other", "Zurich says no", where="C:temp")
    assert [
        json.loads(line)["kind"] for line in failsoft(tmp_path, "events", "--json", "--text", text).splitlines()
    ] == ["trip"]


@pytest.mark.parametrize(
    ("wanted", "at_most"),
    [
        (Wanted(), 0),
        (Wanted(), 5),
        (Wanted(), 10_000),
        (Wanted(kind="rare"), 3),
        (Wanted(side=Side.SERVING, subject="g"), 70),
        (Wanted(side=Side.TRAINING), 2),
        (Wanted(text='"NUMBER":150'), 5),
        (Wanted(text="ß"), 5),
        (Wanted(text="STRASSE"), 4),
        (Wanted(since_s=1_700_000_000.0 + 2 * 86_400.0), None),
        (Wanted(since_s=1_700_000_000.0 + 9 * 86_400.0, kind="rare"), 2),
    ],
)
def test_read_from_the_end_the_newest_are_those_of_all_that_are_read_from_the_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: Wanted, at_most: int | None
) -> None:
    """The first stride holds a few events only, so that each case goes back several times, over several files."""
    monkeypatch.setattr(events_module, "_FIRST_BYTES", 700)
    clock, path = ManualClock(), tmp_path / "ledger.jsonl"
    ledger = Ledger(path, clock, side=Side.SERVING, subject="g")
    for number in range(300):
        clock.advance(86_400.0 / 30)
        street = {"street": "Große Straße"} if number % 9 == 0 else {}
        ledger.record("rare" if number % 50 == 0 else "usual", "w" * (number % 90), number=number, **street)
        if number % 100 == 99:
            put_away(path, full_bytes=1)
    every = [event for event in read_ledger(path).events if wanted.fits(event)]
    tail, found = newest(path, wanted, at_most)
    assert list(found) == (every if at_most is None else every[len(every) - min(at_most, len(every)) :])
    ledger.record("news", "after all that")
    assert [json.loads(line)["kind"] for line in tail.new_lines()] == ["news"]
    tail.close()


def test_the_last_events_of_a_long_ledger_are_found_without_reading_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger.jsonl"
    line = Ledger(path, ManualClock(), side=Side.SERVING, subject="g").record("usual", "w").to_line()
    path.write_bytes(line * 40_000)
    parsed: list[bytes] = []

    def parse(found: bytes) -> Event | None:
        parsed.append(found)
        return parse_event(found)

    monkeypatch.setattr(events_module, "parse_event", parse)
    tail, found = newest(path, Wanted(), 50)
    assert len(list(found)) == 50
    assert 50 <= len(parsed) <= (1 << 17) // len(line) + 1
    tail.close()
