"""Two real ranks under DDP: one verdict, one end, and nobody left waiting."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.rank_pair import outputs_of_two
from tests.training.guard_ranks import TRIALS


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, dict[str, Any]]]:
    """What each rank found in each trial."""
    folder = tmp_path_factory.mktemp("ranks")
    outputs = outputs_of_two("tests.training.guard_ranks", str(folder))
    lines = [[json.loads(line) for line in output.splitlines()] for output in outputs]
    return [{line["name"]: line for line in of_one} for of_one in lines]


@pytest.mark.parametrize("name", sorted(TRIALS))
def test_a_step_that_is_bad_on_one_rank_never_happened_on_either(
    name: str, told: list[dict[str, dict[str, Any]]]
) -> None:
    first, second = (of_one[name] for of_one in told)
    for rank in (first, second):
        assert rank["differs"] is None
        assert rank["good ones refused"] == 0
        assert [refusal is not None for refusal in rank["refusals"]] == rank["planned"]
    assert first["digest"] == second["digest"]


def test_ranks_that_run_out_of_memory_try_again_in_parts_with_the_gradients_of_the_whole_batch(
    told: list[dict[str, dict[str, Any]]],
) -> None:
    first, second = (of_one["out of memory"] for of_one in told)
    assert (first["failed"], second["failed"]) == (1, 1)
    assert max(first["apart"], second["apart"]) < 1e-5
    assert first["digest"] == second["digest"]


def test_a_guard_that_is_told_nothing_of_ranks_shares_its_verdict_all_the_same(
    told: list[dict[str, dict[str, Any]]],
) -> None:
    assert [of_one["ranks unsaid"]["applied"] for of_one in told] == [False, False]


@pytest.mark.parametrize("late", [False, True])
def test_sharded_weights_are_guarded_although_a_rank_holds_nothing_of_a_small_one(
    late: bool, told: list[dict[str, dict[str, Any]]]
) -> None:
    for of_one in told:
        found = of_one[f"sharded, late {late}"]
        assert found["refused"] == found["blamed"] == [False, True, True, False]
        assert found["moved"] == [False, False, True]
        assert found["ill"] is None


def test_gradients_compressed_by_powersgd_are_finite_again_after_a_refused_batch(
    told: list[dict[str, dict[str, Any]]],
) -> None:
    """A late verdict costs one batch more: its backward pass ran before the host knew what to drop."""
    for of_one in told:
        assert of_one["compressed, late False"]["refused"] == [number == 5 for number in range(10)]
        assert of_one["compressed, late True"]["refused"] == [number in {5, 6} for number in range(10)]
