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
from tests.drills.toy_job import ToyJob

pytestmark = [pytest.mark.drill, pytest.mark.filterwarnings("ignore:`use_:DeprecationWarning")]

PATIENCE_S = 300.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("preflight") / "run"


@pytest.fixture(scope="module")
def outcome(folder: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.drills.preflight_cluster", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr[-4000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


def events(folder: Path, kind: str) -> list[Event]:
    return [event for event in read_ledger(folder / "ledger.jsonl").events if event.kind == kind]


def test_the_run_finishes_on_the_spare_nodes_and_the_ledger_names_the_bad_ones(
    outcome: dict[str, Any], folder: Path
) -> None:
    run = outcome["run"]
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
    outcome: dict[str, Any], folder: Path
) -> None:
    run = outcome["run"]
    assert run["later"] == [sorted(run["bad"]), [run["bad"][1]]]
    (returned,) = events(folder, "node_returned")
    assert returned.data["node"] == run["bad"][0]


def test_four_sound_nodes_are_all_fit(outcome: dict[str, Any]) -> None:
    assert outcome["looks"]["None"]["excluded"] == []


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("wrong_sum", "its part of the all-reduce was"),
        ("away_from_meeting", "did not come to the all-reduce"),
        ("no_answer", "no answer in"),
    ],
)
def test_a_node_that_fails_only_with_others_or_says_nothing_is_named_and_no_other(
    outcome: dict[str, Any], kind: str, said: str
) -> None:
    look = outcome["looks"][kind]
    assert look["excluded"] == [outcome["looks"]["node"]]
    assert said in look["why"]
    assert look["took_s"] < 30.0
