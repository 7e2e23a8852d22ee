from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from failsoft.training.snapshots.snapshot_place import SnapshotPlace
from tests.rank_pair import heard_from

ROOT = Path(__file__).resolve().parents[3]
PATIENCE_S = 240


def run_ranks(folder: Path, place: SnapshotPlace, world: int) -> list[dict[str, Any]]:
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    module = [sys.executable, "-m", "tests.training.snapshot_ranks"]
    ranks = [
        subprocess.Popen(
            [*module, str(rank), str(world), place, str(folder)],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(world)
    ]
    try:
        return [json.loads(text) for text in heard_from(ranks, patience_s=PATIENCE_S)]
    finally:
        for rank in ranks:
            rank.kill()


@pytest.fixture(scope="module", params=[("rank_zero", 2), ("sharded", 2), ("sharded", 3)], ids=str)
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    place, world = request.param
    return run_ranks(tmp_path_factory.mktemp("ranks"), SnapshotPlace(place), world)


def test_every_rank_goes_back_bit_for_bit_also_a_second_time(seen: list[dict[str, Any]]) -> None:
    for rank in seen:
        assert rank["first"] is rank["second"] is rank["third"] is None
        assert rank["once"] is rank["twice"] is True
        assert rank["went on once"] == rank["went on twice"] == seen[0]["went on once"]


def test_a_state_that_is_ill_on_one_rank_is_refused_on_all_which_say_where(seen: list[dict[str, Any]]) -> None:
    *others, last = seen
    assert last["ill"] == "model/4.bias"
    assert [rank["ill"] for rank in others] == [f"model/4.bias on rank {len(others)}"] * len(others)


def test_each_rank_keeps_its_own_generator(seen: list[dict[str, Any]]) -> None:
    assert len({rank["generator"] for rank in seen}) == len(seen)


def test_what_is_alike_is_held_once(seen: list[dict[str, Any]]) -> None:
    state, own = seen[0]["state"], seen[0]["own"]
    least, most = 2 * (state - own) + 2 * own * len(seen), 2 * state + 2 * own * len(seen)
    assert least <= sum(rank["held"] for rank in seen) <= most


def test_when_one_rank_has_no_snapshot_all_say_so_and_nobody_hangs(seen: list[dict[str, Any]]) -> None:
    assert {rank["none"] for rank in seen} == {"no snapshot on rank 0 to go back to; take one before the first step"}
