"""A run that starts lets go of what is past its time in its own folder, and nothing of that holds it up."""

from __future__ import annotations

from pathlib import Path

from failsoft.artifacts.home import Home
from failsoft.health.clock import ManualClock
from failsoft.health.retention import DAY_S
from failsoft.training.letters.letterbook import read_dead_letters
from tests.test_cli_letters import bury
from train_jobs.entry import _let_go


def test_old_letters_go_when_a_run_starts_and_settings_that_cannot_be_meant_are_said(tmp_path: Path) -> None:
    bury(tmp_path, "first", 3)  # at second 0
    home, said = Home(root=tmp_path), list[str]()
    letters = home.run("first") / "dead_letters"
    clock = ManualClock(wall_s=401 * DAY_S)
    (tmp_path / "retention.toml").write_text("letters_days = 0")
    _let_go(home, home.run("first"), clock=clock, say=said.append)
    assert len(read_dead_letters(letters)) == 1
    assert "letters_days is 0" in said[0]
    (tmp_path / "retention.toml").unlink()
    _let_go(home, home.run("first"), clock=clock, say=said.append)
    assert (read_dead_letters(letters), len(said)) == ([], 1)
