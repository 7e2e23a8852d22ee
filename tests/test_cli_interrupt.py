"""Ctrl-C, as a terminal sends it, ends a command that waits, and leaves nothing running. Those with Ray: the drills."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from failsoft.health.clock import SystemClock
from tests.incidents.made import Told
from tests.test_cli_letters import bury

PATIENCE_S = 60.0


def of_session(leader: int) -> set[int]:
    """Processes that the command has started and that are still there, zombies left out."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, session = stat.read_text().rpartition(")")[2].split()[:4]
        except (OSError, ValueError):
            continue
        if int(session) == leader and state != "Z":
            found.add(int(stat.parent.name))
    return found


def said(process: subprocess.Popen[str], word: str) -> Callable[[], bool]:
    assert process.stdout is not None
    return lambda: word in process.stdout.readline()  # type: ignore[union-attr]  # as just said


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to see what is left running")
@pytest.mark.parametrize(
    ("command", "begun", "statuses"),
    [
        (("events", "--follow"), "gateway_tripped", {0}),
        (("alerts", "run", "--port", "{port}"), "taking alerts at", {0, 130}),  # the second until it waits
        (("preempt", "first", "--wait", "600"), "", {130}),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
def test_ctrl_c_ends_it_and_leaves_nothing(
    tmp_path: Path, command: tuple[str, ...], begun: str, statuses: set[int]
) -> None:
    bury(tmp_path, "first", 3)
    Told(tmp_path).whole_incident()
    (tmp_path / "alerts.toml").write_text('[[receive]]\nalert = "X"\naction = "degrade"\nfor = "5m"\n')
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    words = [word.format(port=port) for word in command]
    typed = [sys.executable, "-m", "failsoft.cli.main", *words, "--home", str(tmp_path)]
    environment = os.environ | {"PYTHONUNBUFFERED": "1", "COLUMNS": "500"}
    with subprocess.Popen(
        typed, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    ) as process:
        has_begun = said(process, begun) if begun else (tmp_path / "runs" / "first" / "leave.json").exists
        clock = SystemClock()
        until_s = clock.monotonic_s() + PATIENCE_S
        while not has_begun():
            assert clock.monotonic_s() < until_s
            clock.sleep_s(0.02)
        os.killpg(process.pid, signal.SIGINT)
        out, error = process.communicate(timeout=PATIENCE_S)
    assert of_session(process.pid) == set()
    assert process.returncode in statuses, (out, error)
    assert "Traceback" not in out + error
