"""Products whose right answer is known."""

from __future__ import annotations

import os

import numpy as np
import pytest
from numpy.typing import NDArray

from failsoft.health.clock import ManualClock, SystemClock
from failsoft.training.survival.preflight import Outcome
from failsoft.training.survival.preflight_compute import (
    KNOWN_ANSWER,
    check,
    factors,
    flip_a_bit,
    known_answer,
    known_answer_on_device,
    memory_pattern,
)


@pytest.mark.parametrize("largest", sorted(KNOWN_ANSWER))
def test_the_known_answer_is_that_of_whole_numbers(largest: int) -> None:
    first, second = (factor.astype(np.int64) for factor in factors(largest))
    assert max(int(abs(first).max()), int(abs(second).max())) == largest
    right = first @ second
    by_hand = sum(int(a) * int(b) for a, b in zip(first[3, 5], second[3, :, 7], strict=True))
    assert int(right[3, 5, 7]) == by_hand
    assert check(right.astype(np.int32)) == KNOWN_ANSWER[largest]


def test_small_factors_keep_all_sums_within_what_bfloat16_says_exactly() -> None:
    first, second = (factor.astype(np.int64) for factor in factors(1))
    assert int((abs(first) @ abs(second)).max()) <= 256


def test_a_sound_machine_passes_on_each_of_its_cores_and_keeps_its_own_affinity() -> None:
    before = os.sched_getaffinity(0)
    found = known_answer(0.05, SystemClock())
    assert found.outcome is Outcome.PASSED
    assert f"of {len(before)} cores" in found.why
    assert os.sched_getaffinity(0) == before


def test_one_flipped_bit_fails_and_names_the_core_and_the_affinity_is_as_before() -> None:
    before = os.sched_getaffinity(0)
    found = known_answer(1.0, SystemClock(), flaw=flip_a_bit)
    assert found.outcome is Outcome.FAILED
    assert found.why.startswith("core ")
    assert os.sched_getaffinity(0) == before


class RunningClock(ManualClock):
    """A second passes at each look."""

    def monotonic_s(self) -> float:
        self.advance(1.0)
        return super().monotonic_s()


def test_without_time_one_core_is_looked_at_and_later_turns_begin_with_others() -> None:
    begun: set[int] = set()

    def note(product: NDArray[np.int32]) -> NDArray[np.int32]:
        begun.update(os.sched_getaffinity(0))
        return product

    for turn in range(8):
        found = known_answer(0.5, RunningClock(), turn=turn, flaw=note)
        assert found.why.startswith("1 products on 1 of ")
    assert len(begun) >= min(4, len(os.sched_getaffinity(0)))


def test_torch_computes_the_same_known_answers_in_three_formats() -> None:
    found = known_answer_on_device("cpu", 1e-9, SystemClock())
    assert found.outcome is Outcome.PASSED, found.why


def test_a_gpu_that_torch_does_not_see_where_one_was_promised_is_a_failure() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    assert known_answer_on_device("cuda:0", 0.1, SystemClock()).outcome is Outcome.FAILED


@pytest.mark.cuda
def test_a_gpu_computes_the_known_answers() -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    assert known_answer_on_device("cuda:0", 0.1, SystemClock()).outcome is Outcome.PASSED


def test_memory_gives_back_what_was_written() -> None:
    found = memory_pattern(1 << 20)
    assert (found.outcome, found.why) == (Outcome.PASSED, "1 MiB, 4 patterns")
