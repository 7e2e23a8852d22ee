"""An unfit node gets no worker: the run goes on on the others, and the ledger names the node and the reason."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from failsoft.health.ledger import Event, read_ledger
from tests.conftest import ROOT
from tests.drills.last_line import last_line
from tests.drills.toy_job import ToyJob

pytestmark = [pytest.mark.drill, pytest.mark.filterwarnings("ignore:`use_:DeprecationWarning")]

PATIENCE_S = 600.0


def carried_out(folder: Path, what: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.drills.preflight_cluster", str(folder), what]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr[-4000:]
    return dict(json.loads(last_line(done.stdout, "{")))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("preflight") / "run"


@pytest.fixture(scope="module")
def run(folder: Path) -> dict[str, Any]:
    return carried_out(folder, "toy")


@pytest.fixture(scope="module")
def looks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return carried_out(tmp_path_factory.mktemp("looks"), "looks")


def events(folder: Path, kind: str) -> list[Event]:
    return [event for event in read_ledger(folder / "ledger.jsonl").events if event.kind == kind]


def test_the_run_finishes_on_the_spare_nodes_and_the_ledger_names_the_bad_ones(
    run: dict[str, Any], folder: Path
) -> None:
    assert run["end"] is None
    assert run["excluded"] == sorted(run["bad"])
    assert set(run["used"]).isdisjoint(run["bad"])
    assert len(set(run["used"])) == 2
    told = {event.data["node"]: event.why for event in events(folder, "node_excluded")[:2]}
    assert told[run["bad"][0]].startswith("matmul: core ")
    assert "Read-only file system" in told[run["bad"][1]]
    (finished,) = events(folder, "run_finished")
    assert finished.data["position"] == ToyJob(folder=folder).total_batches


def test_a_node_that_was_mended_comes_back_after_two_passes_and_the_other_stays_away(
    run: dict[str, Any], folder: Path
) -> None:
    assert run["later"] == [sorted(run["bad"]), [run["bad"][1]]]
    (returned,) = events(folder, "node_returned")
    assert returned.data["node"] == run["bad"][0]


def test_a_node_that_turns_bad_while_a_job_runs_is_left_to_a_spare_by_the_next_attempt(tmp_path: Path) -> None:
    job = carried_out(tmp_path, "job")
    before, after = events(tmp_path, "preflight")
    assert len(before.data["nodes"]) == len(after.data["nodes"]) == 4
    assert all(node["passed"] for node in before.data["nodes"].values())
    (excluded,) = events(tmp_path, "node_excluded")
    assert excluded.data["node"] == job["bad"]
    assert excluded.why.startswith("matmul: core ")
    first, second = (chosen.why for chosen in events(tmp_path, "workers_chosen"))
    assert "is excluded" not in first
    assert f"{excluded.data['host']} is excluded" in second
    (finished,) = events(tmp_path, "run_finished")
    assert finished.data["position"] == 20


def test_four_sound_nodes_are_all_fit(looks: dict[str, Any]) -> None:
    assert looks["None"]["excluded"] == []


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("wrong_sum", "its part of the all-reduce was"),
        ("away_from_meeting", "did not come to the all-reduce"),
        ("no_answer", "no answer in"),
    ],
)
def test_a_node_that_fails_only_with_others_or_says_nothing_is_named_and_no_other(
    looks: dict[str, Any], kind: str, said: str
) -> None:
    look = looks[kind]
    assert look["excluded"] == [looks["node"]]
    assert said in look["why"]
    assert look["took_s"] < 60.0
