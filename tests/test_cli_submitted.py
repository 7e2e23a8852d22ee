"""``failsoft train --submit`` as a command, with Ray's own client, before a dashboard that asks for a token."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

from tests.job_dashboard import JOB, LOG, TOKEN, Dashboard, dashboard


def command(board: Dashboard, folder: Path, *words: str) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "FAILSOFT_"))}
    environment |= {"RAY_AUTH_TOKEN": TOKEN, "RAY_ADDRESS": "10.9.9.9:6379", "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "failsoft.cli.main", "train", "--submit", board.url, "--run", "r", *words],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def read_to(stream: IO[str] | None, line: str) -> None:
    assert stream is not None
    for said in stream:
        if said == line:
            return
    raise AssertionError(f"it never said {line!r}")


def test_a_job_is_followed_over_a_broken_connection_to_its_end_and_its_exit_status_is_ours(tmp_path: Path) -> None:
    (tmp_path / "code.py").touch()
    with dashboard(status="FAILED", exit_code=4, breaks=1) as board:
        said, remarked = command(board, tmp_path, "--working-dir", ".", "--seed", "5").communicate(timeout=120)
    assert said == "".join(LOG), remarked
    assert f"the job {JOB} failed with exit status 4: ended" in remarked
    (sent,) = board.sent
    assert sent["entrypoint"].endswith("exec python -m train_jobs.intent_ner --run r --threads 2 --seed 5")
    assert sent["runtime_env"]["working_dir"].startswith("gcs://")


def test_ctrl_c_ends_the_command_and_not_the_job(tmp_path: Path) -> None:
    with dashboard() as board:
        running = command(board, tmp_path)
        read_to(running.stdout, "three\n")
        running.send_signal(signal.SIGINT)
        _, remarked = running.communicate(timeout=120)
        assert (running.returncode, board.stops, board.status) == (130, 0, "RUNNING"), remarked
        assert f"ray job stop --address {board.url} {JOB}" in remarked


def test_ctrl_c_stops_the_job_where_that_is_asked_for(tmp_path: Path) -> None:
    with dashboard() as board:
        running = command(board, tmp_path, "--stop-on-interrupt")
        read_to(running.stdout, "three\n")
        running.send_signal(signal.SIGINT)
        _, remarked = running.communicate(timeout=120)
        assert (running.returncode, board.stops) == (143, 1), remarked
