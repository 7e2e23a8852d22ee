"""Memory runs out on three ranks at random places and moments: no batch is lost, and no rank waits for ever."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.drills.memory_fuzz_rank import POSITIONS, WORLD, plan_of
from tests.rank_pair import heard_from

pytestmark = pytest.mark.drill

SEEDS = list(range(8))
PATIENCE_S = 500
Told = dict[tuple[int, bool], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """What each rank ended with, by seed and by whether there was trouble."""
    folder = tmp_path_factory.mktemp("fuzz")
    command = [sys.executable, "-m", "tests.drills.memory_fuzz_rank"]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(folder), json.dumps(SEEDS)],
            cwd=ROOT,
            env=os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(WORLD)
    ]
    try:
        outputs = heard_from(ranks, patience_s=PATIENCE_S)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    found: Told = {}
    for line in (line for output in outputs for line in output.splitlines() if line.startswith("{")):
        result = json.loads(line)
        found.setdefault((result["seed"], result["faults"]), []).append(result)
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_runs_out_all_ranks_end_alike_and_as_the_run_without_trouble(told: Told, seed: int) -> None:
    clean, troubled = told[seed, False], told[seed, True]
    assert len(clean) == len(troubled) == WORLD
    for one in (*clean, *troubled):
        assert one["applied"] == POSITIONS
        assert np.isfinite(one["weights"]).all()
    assert all(one["weights"] == troubled[0]["weights"] for one in troubled)
    assert troubled[0]["moves"] > 0 == clean[0]["moves"]
    np.testing.assert_allclose(troubled[0]["weights"], clean[0]["weights"], rtol=1e-6)


def test_the_seeds_are_of_all_hooks_and_of_trouble_on_each_rank() -> None:
    plans = [plan_of(seed) for seed in SEEDS]
    assert {hook for _, hook, _ in plans} == {"", "allreduce"}
    assert {one.rank for _, _, faults in plans for one in faults} == set(range(WORLD))
