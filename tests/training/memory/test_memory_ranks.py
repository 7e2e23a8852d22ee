"""Two real ranks under DDP, one of which runs out of memory: both shrink, nobody waits, the gradient is the batch's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from failsoft.health.faults import Fault, FaultKind, FaultMoment
from failsoft.health.ledger import read_ledger
from tests.rank_pair import outputs_of_two
from tests.training.memory.memory_ranks import BATCHES, TRIALS
from tests.training.test_two_ranks import run_two

Told = list[dict[str, dict[str, Any]]]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """What each rank found in each trial."""
    folder = tmp_path_factory.mktemp("ranks")
    outputs = outputs_of_two("tests.training.memory.memory_ranks", str(folder))
    lines = [[json.loads(line) for line in output.splitlines()] for output in outputs]
    return [{line["name"]: line for line in of_one} for of_one in lines]


@pytest.mark.parametrize("name", sorted(TRIALS))
def test_when_one_rank_runs_out_both_shrink_and_the_gradient_is_the_whole_batchs(name: str, told: Told) -> None:
    first, second = (of_one[name] for of_one in told)
    assert first["apart"] < 1e-6
    assert second["apart"] < 1e-6
    assert first["rungs"] == second["rungs"]
    assert "micro-batches" in first["rungs"][-1]
    assert first["weights"] == second["weights"]


@pytest.mark.parametrize("name", sorted(TRIALS))
def test_no_batch_is_lost_to_a_rank_that_ran_out(name: str, told: Told) -> None:
    assert [of_one[name]["applied"] for of_one in told] == [[True] * BATCHES] * 2


def test_the_rank_that_had_room_knows_what_the_other_ran_out_of(told: Told) -> None:
    for of_one in told:
        said = of_one["backward, rank 1"]["told"]
        assert all(line.startswith("rank 1 ran out of memory at faulty.py") for line in said)
        assert len(said) == 2


def test_an_uneven_last_micro_batch_counts_by_its_samples(told: Told) -> None:
    """Seven samples a rank in pieces of 4 and 3, of 2, 2, 2 and 1, and of 1."""
    assert told[0]["forward, rank 1"]["rungs"][-1] == "micro-batches, 2 a batch"
    assert told[0]["again later"]["rungs"][-1] == "micro-batches, 4 a batch"
    assert told[0]["again, in a micro-batch"]["rungs"][-1] == "micro-batches, 7 a batch"


def test_the_loss_scale_is_not_blamed_for_memory(told: Told) -> None:
    assert [of_one["grad scaler"]["scale"] for of_one in told] == [8.0, 8.0]


def test_a_whole_run_of_two_ranks_goes_on_in_smaller_pieces(tmp_path: Path) -> None:
    """Its model has batch norm and dropout: the ranks agree, though pieces are not the same to the bit."""
    backward = Fault(kind=FaultKind.OUT_OF_MEMORY, position=5, rank=1, when=FaultMoment.BACKWARD, above_samples=2)
    forward = Fault(kind=FaultKind.OUT_OF_MEMORY, position=17, rank=0, above_samples=2)
    first, second = run_two(tmp_path / "run", backward, forward)
    assert (first["position"], first["step"]) == (second["position"], second["step"]) == (24, 24)
    for name in (name for name in first["weights"] if "running" not in name):  # batch statistics are each rank's own
        assert first["weights"][name] == second["weights"][name]
    events = read_ledger(tmp_path / "run" / "ledger.jsonl").events
    moves = [event for event in events if event.data.get("degradation") == "memory_rung"]
    assert [event.data["level"] for event in moves] == ["caches freed", "micro-batches, 2 a batch"]
    assert [event.data["rank"] for event in moves] == [1, 1]
