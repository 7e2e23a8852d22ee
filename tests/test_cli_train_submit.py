"""A run that is handed to a cluster: what is sent, what is seen of it, and that its exit status is ours."""

from __future__ import annotations

import json
import subprocess
from argparse import Namespace
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

import failsoft.cli.main  # noqa: F401 -- hangs the commands on the app
from failsoft.cli.app import app
from failsoft.cli.clusters import Cluster
from failsoft.cli.followed_job import follow
from failsoft.cli.train_submit import Submission, entrypoint, hand_over, runtime_env
from failsoft.errors import ConfigError, NoRayError
from failsoft.health.clock import ManualClock
from tests.conftest import ROOT
from train_jobs.options import parser

AT = Cluster(url="http://127.0.0.1:8265", ray="2.60.0", sends_token=True)
LOG = ["step 1\n", "step 2\nstep", " 3\n"]


class Held:
    """A cluster that holds one job; each connection to its log sees it from the beginning, as Ray's does."""

    def __init__(self, *, ends: str = "SUCCEEDED", code: int | None = None, cuts: tuple[int, ...] = ()) -> None:
        self.sent: list[dict[str, Any]] = []
        self.stopped: list[str] = []
        self._ends, self._code, self._cuts = ends, code, list(cuts)
        self.on_tail: Callable[[], None] = lambda: None
        self.away = 0
        """So many more questions are not answered."""

    def submit_job(self, **job: Any) -> str:
        self.sent.append(job)
        return "raysubmit_1"

    def get_job_info(self, _job_id: str) -> Any:
        if self.away:
            self.away -= 1
            raise ConnectionError("refused")
        over = not self._cuts
        said = "Job entrypoint command failed with exit code 3, last available logs (truncated to 20,000 chars):\n\nx"
        return SimpleNamespace(
            status=self._ends if over else "RUNNING", driver_exit_code=self._code if over else None, message=said
        )

    async def tail_job_logs(self, _job_id: str) -> AsyncIterator[str]:
        self.on_tail()
        broken = bool(self._cuts)
        cut = self._cuts.pop(0) if broken else len(LOG)
        for piece in LOG[:cut]:
            yield piece
        if broken:
            raise RuntimeError("WebSocket connection closed unexpectedly with close code 1006")

    def stop_job(self, job_id: str) -> bool:
        self.stopped.append(job_id)
        self._ends, self._code, self.on_tail = "STOPPED", None, lambda: None
        return True


def given(*words: str) -> Namespace:
    return parser().parse_args(["--run", "r", *words])


def handed(jobs: Held, *, words: tuple[str, ...] = (), **how: Any) -> int:
    return hand_over(jobs, given(*words), Submission(address=AT.url, **how), AT, clock=ManualClock())


@pytest.mark.parametrize(
    ("ends", "code", "ours"),
    [
        ("SUCCEEDED", 0, 0),
        ("FAILED", 3, 3),
        ("FAILED", 4, 4),
        ("FAILED", 143, 143),
        ("FAILED", -9, 137),
        ("FAILED", None, 1),
        ("STOPPED", None, 143),
        ("STOPPED", 143, 143),
    ],
)
def test_the_jobs_exit_status_is_handed_on(
    ends: str, code: int | None, ours: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert handed(Held(ends=ends, code=code)) == ours
    said = capsys.readouterr()
    assert said.out == "".join(LOG)
    assert ours == 0 or f"{ends.lower()} with exit status {ours}: Job entrypoint command failed" in said.err


def test_what_was_shown_before_a_connection_broke_is_not_shown_again() -> None:
    seen: list[str] = []
    ended = follow(Held(cuts=(1, 2)), "raysubmit_1", show=seen.append, clock=ManualClock())
    assert "".join(seen) == "".join(LOG)
    assert ended.exit_status == 0


def test_a_dashboard_that_is_away_for_a_while_is_waited_for() -> None:
    jobs = Held()
    jobs.away = 100
    assert follow(jobs, "raysubmit_1", show=lambda _seen: None, clock=ManualClock()).status == "SUCCEEDED"


def test_one_that_stays_away_is_given_up_and_the_job_is_not_called_failed() -> None:
    jobs = Held()
    jobs.away = 1_000
    with pytest.raises(NoRayError, match="may well go on: see ray job status raysubmit_1"):
        follow(jobs, "raysubmit_1", show=lambda _seen: None, clock=ManualClock())


def test_a_head_that_forgot_the_job_is_no_reason_to_wait() -> None:
    jobs = Held()

    def gone() -> None:
        raise RuntimeError("Request failed with status code 404: Job raysubmit_1 does not exist.")

    jobs.on_tail = gone
    with pytest.raises(NoRayError, match="submit it again, it goes on from its newest checkpoint"):
        follow(jobs, "raysubmit_1", show=lambda _seen: None, clock=ManualClock())


def interrupt() -> None:
    raise KeyboardInterrupt


def test_ctrl_c_leaves_the_job_running_and_says_how_to_stop_it(capsys: pytest.CaptureFixture[str]) -> None:
    jobs = Held()
    jobs.on_tail = interrupt
    assert handed(jobs) == 130
    said = capsys.readouterr().err
    assert jobs.stopped == []
    assert "the job raysubmit_1 goes on" in said
    assert f"ray job stop --address {AT.url} raysubmit_1" in said


def test_ctrl_c_stops_the_job_where_that_was_asked_for_and_waits_until_it_has_saved() -> None:
    jobs = Held()
    jobs.on_tail = interrupt
    assert handed(jobs, stop_on_interrupt=True) == 143
    assert jobs.stopped == ["raysubmit_1"]


def test_a_job_that_is_not_followed_is_only_handed_over(capsys: pytest.CaptureFixture[str]) -> None:
    assert handed(Held(ends="FAILED", code=3), follow=False, json=True) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["job"] == "raysubmit_1"
    assert "ray job logs --follow" in said.err


def test_as_json_only_the_end_is_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert handed(Held(ends="FAILED", code=3), json=True) == 3
    said = capsys.readouterr()
    assert json.loads(said.out) | {"message": ""} == {
        "job": "raysubmit_1",
        "status": "FAILED",
        "exit_code": 3,
        "message": "",
    }
    assert "step 3" in said.err


def test_the_command_that_the_head_runs_is_the_job_with_the_same_words() -> None:
    jobs = Held()
    handed(jobs, words=("--home", "/shared/fs", "--workers", "1:4", "--track", "mlflow:http://x y"))
    assert jobs.sent[0]["entrypoint"] == (
        "python -m train_jobs.intent_ner --home /shared/fs --run r --workers 1:4 --track 'mlflow:http://x y'"
    )
    assert jobs.sent[0]["metadata"] == {"failsoft_run": "r"}


@pytest.mark.parametrize(("home", "code", "says"), [("", 1, "FAILSOFT_HOME is not set where"), ("/h", 0, "")])
def test_a_cluster_without_a_home_refuses_the_run_before_it_begins(home: str, code: int, says: str) -> None:
    """Else its release would lie in a folder that Ray removes with the job."""
    command = entrypoint(given()).replace("python -m", "true")
    done = subprocess.run(
        ["/bin/bash", "-c", command], env={"FAILSOFT_HOME": home}, capture_output=True, text=True, check=False
    )
    assert done.returncode == code
    assert says in done.stderr
    assert bool(done.stderr) == bool(says)


def test_a_checkout_is_sent_whole_and_its_own_failsoft_runs(tmp_path: Path) -> None:
    env = {"working_dir": str(ROOT), "env_vars": {"PYTHONPATH": "platform"}}
    assert runtime_env(None, ROOT) == env
    assert runtime_env(ROOT, tmp_path) == env
    assert runtime_env(None, tmp_path) == {}, "an installed failsoft sends nothing of the folder that it is called in"
    assert runtime_env(tmp_path, ROOT) == {"working_dir": str(tmp_path)}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--no-follow"], "for a job that is handed on: --submit"),
        (["--submit", "ray://x", "--workers", "1"], "give the dashboard's address"),
        (["--submit", "x", "--workers", "none"], "workers"),
        (["--submit", "x", "--working-dir", "/absent"], "which is no folder"),
    ],
)
def test_what_cannot_be_meant_is_said_before_anything_is_sent(words: list[str], says: str) -> None:
    done = CliRunner().invoke(app, ["train", *words])
    assert isinstance(done.exception, ConfigError)
    assert says in str(done.exception)
