"""``failsoft preempt --wait``: told by a file, answered by the run's ledger."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from failsoft.artifacts.home import Home
from failsoft.cli import main as _main  # noqa: F401 -- importing it hangs all commands on the app
from failsoft.cli import preempt as preempting
from failsoft.cli.app import app
from failsoft.errors import PreemptedError
from failsoft.health.clock import Clock, ManualClock, SystemClock
from failsoft.health.ledger import Event, Ledger, Side, parse_event
from failsoft.health.ledger_retention import judge_events
from failsoft.health.line_removal import remove_lines
from failsoft.training.survival.notice import drop_notice, read_notice


class Worker:
    """Leaves as soon as it is told, and says so by the clock of its own machine."""

    def __init__(self, home: Home, clock: Clock) -> None:
        self.folder = home.run("r")
        self.folder.mkdir(parents=True)
        self.ledger = Ledger(home.ledger, clock, side=Side.TRAINING, subject="r")

    def hear(self, folder: Path, why: str) -> Path:
        dropped = drop_notice(folder, why)
        self.ledger.record("preempted", why)
        return dropped


def waits(home: Home) -> None:
    done = CliRunner().invoke(app, ["preempt", "r", "--wait", "0.5", "--home", str(home.root)], standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    assert "has left" in done.stdout


@pytest.mark.parametrize("behind_s", [0.0, 3600.0, -3600.0])
def test_workers_have_left_whatever_the_clocks_of_their_machines_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behind_s: float
) -> None:
    home = Home(root=tmp_path)
    worker = Worker(home, ManualClock(wall_s=SystemClock().wall_s() - behind_s))
    monkeypatch.setattr("failsoft.training.survival.notice.drop_notice", worker.hear)
    waits(home)
    assert read_notice(worker.folder) is not None


def test_its_word_is_heard_though_a_purge_takes_older_events_out_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(root=tmp_path)
    worker = Worker(home, ManualClock(wall_s=1000.0))
    for _ in range(5):
        worker.ledger.record("rollback", "old")

    def hear(folder: Path, why: str) -> Path:
        remove_lines(home.ledger, judge_events(1001.0))
        return worker.hear(folder, why)

    monkeypatch.setattr("failsoft.training.survival.notice.drop_notice", hear)
    waits(home)


def test_it_is_told_at_once_however_long_the_ledger_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A notice of a minute must not be spent on reading what was written in a year."""
    home = Home(root=tmp_path)
    worker = Worker(home, SystemClock())
    worker.ledger.record("rollback", "old")
    read = []

    def parse(line: bytes) -> Event | None:
        read.append(line)
        return parse_event(line)

    monkeypatch.setattr(preempting, "parse_event", parse)
    monkeypatch.setattr("failsoft.training.survival.notice.drop_notice", worker.hear)
    waits(home)
    assert len(read) == 1


def test_last_words_of_an_earlier_time_are_no_answer_though_a_clock_runs_ahead(tmp_path: Path) -> None:
    home = Home(root=tmp_path)
    worker = Worker(home, ManualClock(wall_s=SystemClock().wall_s() + 3600.0))
    worker.ledger.record("preempted", "a day ago")
    with pytest.raises(PreemptedError, match="has not left"):
        waits(home)
