from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from failsoft.errors import DropRateError, TrainingError
from failsoft.health.faults import Fault, FaultKind, FaultPlan, burst
from failsoft.training.letters.letter import UNDONE, DeadLetter
from failsoft.training.loop import LoopPlan
from failsoft.training.stop_report import report_of, source_shares
from tests.training.toys import ToyTask, toy_loop


class Sharded(ToyTask):
    """Eight samples to a shard."""

    def sources(self, indices: NDArray[np.int64]) -> Sequence[str]:
        return [f"shard-{index // 8}" for index in indices]


class Shards:
    def sources(self, indices: NDArray[np.int64]) -> Sequence[str]:
        return [f"shard-{index // 100}" for index in indices]


def letter(position: int, samples: Sequence[int], reason: str = "loss is not finite") -> DeadLetter:
    return DeadLetter(position=position, step=0, rank=0, reason=reason, sample_ids=tuple(samples))


def test_the_shard_that_every_refused_batch_has_a_sample_of_comes_first() -> None:
    rng = np.random.default_rng(3)
    letters = [letter(n, [700 + n, *rng.integers(0, 1000, 7).tolist()]) for n in range(24)]
    report = report_of([*letters, letter(99, [1, 2, 3], UNDONE)], task=Shards(), num_samples=1000)
    first, *others = report.sources
    assert (first.source, first.refused_batches, report.refused_samples) == ("shard-7", 24, 24 * 8)
    assert first.lift > 1.5
    assert not first.may_be_chance
    assert all(other.may_be_chance for other in others)


def test_refused_samples_from_anywhere_are_put_down_to_chance() -> None:
    rng = np.random.default_rng(4)
    letters = [letter(n, rng.integers(0, 1000, 8).tolist()) for n in range(30)]
    assert all(share.may_be_chance for share in report_of(letters, task=Shards(), num_samples=1000).sources)


def test_a_source_that_is_not_among_the_samples_asked_is_infinitely_more_often_there() -> None:
    (share,) = source_shares([["new"]], {"old": 10})
    assert (share.lift, share.p_value) == (float("inf"), 0.0)


def test_a_letter_of_samples_that_the_corpus_does_not_have_does_not_end_in_an_error_of_the_task() -> None:
    class Listed:
        def sources(self, indices: NDArray[np.int64]) -> Sequence[str]:
            return [["a", "b"][index] for index in indices]

    report = report_of([letter(1, [1, 2]), letter(2, [-1])], task=Listed(), num_samples=2)
    assert [(share.source, share.refused_samples) for share in report.sources] == [("b", 1)]
    assert (report.refused_samples, report.refused_batches) == (3, 2)


def test_a_task_that_knows_no_sources_still_gets_the_samples_that_come_back() -> None:
    report = report_of([letter(1, [5, 6]), letter(9, [6, 7])], task=object(), num_samples=10)
    assert (report.sources, report.repeated_samples) == ((), {6: 2})
    assert "sources(indices)" in report.to_text()


def test_a_stopped_run_leaves_a_report_and_its_diagnosis_names_the_first_source(tmp_path: Path) -> None:
    plan = LoopPlan(total_batches=400, seed=3, snapshot_every_steps=50, checkpoint_every_steps=100)
    order = toy_loop(tmp_path / "order", plan=plan).batches
    ill = [
        position for position in range(400) if 8 <= order.global_indices(position)[0] < 16
    ]  # the first is of shard 1
    ill += [position for position in range(400) if position % 8 in {1, 4}]
    faults = tuple(Fault(kind=FaultKind.NAN_BATCH, position=position) for position in sorted(set(ill)))
    loop = toy_loop(tmp_path / "run", plan=plan, faults=FaultPlan(faults=faults))
    task = loop.task
    assert isinstance(task, ToyTask)
    loop.task = Sharded(task.model)
    with pytest.raises(DropRateError, match=r"First source to look at: shard-\d") as caught:
        loop.run()
    said = json.loads((tmp_path / "run" / "stop_report.json").read_text("utf-8"))
    text = (tmp_path / "run" / "stop_report.txt").read_text("utf-8")
    assert said["diagnosis"] == str(caught.value) in text
    assert said["refused_samples"] == loop.breaker.refused * 8
    assert sum(entry["refused_samples"] for entry in said["sources"]) == said["refused_samples"]
    assert DropRateError.exit_status == 3


def test_a_task_that_fails_at_the_question_does_not_take_the_place_of_the_stop(tmp_path: Path) -> None:
    class Failing(ToyTask):
        def sources(self, _indices: object) -> list[str]:
            raise KeyError("shard table")

    loop = toy_loop(tmp_path, faults=FaultPlan(faults=burst(FaultKind.NAN_BATCH, first=0, count=24)))
    loop.task = Failing(loop.state.model)
    with pytest.raises(TrainingError, match="failsoft dlq ls"):
        loop.run()
    assert json.loads((tmp_path / "stop_report.json").read_text("utf-8"))["sources"] == []
