"""A process that is killed before any line of a publication leaves nothing half visible, and nothing that can't go."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT


@pytest.mark.drill
def test_a_publication_killed_before_any_of_its_lines_is_whole_or_unseen_and_can_be_done_again(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.drills.publish_victim", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (said,) = done.stdout.splitlines()  # one line for each kill that left something wrong, and one with their number
    kills, _ = said.split()
    assert int(kills) > 100
