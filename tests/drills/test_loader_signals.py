"""Signals that reach a whole process group: they end the loader's workers first, and the run saves all the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from failsoft.training.survival.notice import EXIT_PREEMPTED
from tests.conftest import ROOT
from tests.drills.troubled_run import final_digest, told

PATIENCE_S = 180.0


def process(folder: Path, *, pause_s: float) -> subprocess.Popen[str]:
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "tests.drills.loaded_process", str(folder), str(pause_s)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    )


def members(group: int) -> list[int]:
    """Processes of a group that still run."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text("utf-8").rsplit(")", 1)[1].split() if entry.name.isdigit() else []
        except (FileNotFoundError, ProcessLookupError):
            continue
        if fields and int(fields[2]) == group and fields[0] != "Z":
            found.append(int(entry.name))
    return found


def left_of(group: int) -> list[int]:
    """Processes of a group that still run a good while after its head has ended; helpers go when they see its end."""
    until_s = time.monotonic() + 60.0
    while members(group) and time.monotonic() < until_s:
        time.sleep(0.05)
    return members(group)


@pytest.mark.drill
def test_a_signal_to_the_whole_group_saves_although_the_loaders_workers_die_of_it_first(tmp_path: Path) -> None:
    whole = process(tmp_path / "undisturbed", pause_s=0.0)
    whole.communicate(timeout=PATIENCE_S)
    assert whole.returncode == 0
    folder = tmp_path / "told"
    hit = process(folder, pause_s=0.1)  # far from its end when the signal comes, however late
    assert hit.stdout is not None
    assert hit.stdout.readline() == "third batch\n"
    os.killpg(hit.pid, signal.SIGTERM)
    hit.communicate(timeout=PATIENCE_S)
    assert hit.returncode == EXIT_PREEMPTED
    assert left_of(hit.pid) == []
    (left,) = told(folder, "preempted")
    assert left.data["saved"] is True
    again = process(folder, pause_s=0.0)
    again.communicate(timeout=PATIENCE_S)
    assert again.returncode == 0
    assert final_digest(folder) == final_digest(tmp_path / "undisturbed")


@pytest.mark.drill
def test_workers_end_by_themselves_when_their_training_is_killed(tmp_path: Path) -> None:
    hit = process(tmp_path, pause_s=0.02)
    assert hit.stdout is not None
    assert hit.stdout.readline() == "third batch\n"
    os.kill(hit.pid, signal.SIGKILL)
    hit.communicate(timeout=PATIENCE_S)
    assert left_of(hit.pid) == []
