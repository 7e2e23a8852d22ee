"""Two drivers never train one run at a time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from failsoft.errors import ConfigError
from failsoft.training.checkpoints.driver_lock import sole_driver
from tests.conftest import ROOT

HOLDS = """
import sys
from pathlib import Path
from failsoft.training.checkpoints.driver_lock import sole_driver

with sole_driver(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_driver_of_a_run_is_refused_and_told_of_the_first(tmp_path: Path) -> None:
    with (
        sole_driver(tmp_path / "run"),
        pytest.raises(ConfigError, match=f"'run' is being trained by process {os.getpid()} on"),
        sole_driver(tmp_path / "run"),
    ):
        pytest.fail("two drivers")
    with sole_driver(tmp_path / "run"):
        pass


def test_runs_of_other_names_are_free(tmp_path: Path) -> None:
    with sole_driver(tmp_path / "a"), sole_driver(tmp_path / "b"):
        pass


def test_a_killed_driver_leaves_its_run_free(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDS, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(ConfigError, match=f"process {holder.pid} "), sole_driver(tmp_path):
            pytest.fail("two drivers")
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    with sole_driver(tmp_path):
        pass
