"""The job's samples through the guarded loader: nothing changes on clean data, and bad ones cost only themselves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from failsoft.artifacts.home import Home
from failsoft.health.faults import Fault, FaultKind, FaultPlan
from failsoft.health.ledger import read_ledger
from failsoft.models.network import build
from failsoft.training.checkpoints.checkpoint import deliver_here
from failsoft.training.letters.letterbook import LETTERS_FOLDER
from failsoft.training.loading.bad import BadKind
from failsoft.training.loading.sample_letters import SampleLetter, read_sample_letters
from failsoft.training.loading.weighing import Loads
from failsoft.training.loop import TrainLoop
from failsoft.training.memory.micro_batches import Shrinks
from failsoft.training.ranks import SoloRank
from train_jobs.build import build_loop
from train_jobs.config import JobConfig, Preset
from train_jobs.workload import IntentNerTask, Workload, prepare, read_workload

CPU = torch.device("cpu")
GOOD = 120


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def said(text: str) -> dict[str, Any]:
    return {"data": [{"text": text}]}


@pytest.fixture(scope="module")
def spoilt(tmp_path_factory: pytest.TempPathFactory) -> JobConfig:
    """Three entries that are no samples, and one text of more words than are read."""
    bad = [{}, {"data": "no list"}, said("  "), said("word " * 600)]
    return prepared(tmp_path_factory.mktemp("data"), bad)


def prepared(data: Path, bad: list[dict[str, Any]], *, run: str = "run") -> JobConfig:
    train = [*bad, *(said(f"go to number {n}") for n in range(GOOD))]
    for name, entries in (("train_Go_full.json", train), ("validate_Go.json", [said("a test")])):
        (data / name).write_text(json.dumps({"Go": entries}), "utf-8")
    config = JobConfig(home=data / "home", run=run, data=data, preset=Preset.SNIPS, max_batches=12)
    prepare(config)
    return config


@pytest.fixture(scope="module")
def trained(spoilt: JobConfig) -> TrainLoop:
    loop = build_loop(spoilt, SoloRank(), deliver_here)
    loop.run()
    return loop


@pytest.fixture
def workload(spoilt: JobConfig) -> Workload:
    return read_workload(spoilt)


def letters_of(config: JobConfig) -> tuple[SampleLetter, ...]:
    return read_sample_letters(config.home / "runs" / "run" / LETTERS_FOLDER)


def weights_of(loop: TrainLoop) -> dict[str, torch.Tensor]:
    return {name: values.clone() for name, values in loop.state.model.state_dict().items()}


def test_clean_data_gives_the_same_weights_bit_for_bit_as_without_the_loader(tmp_path: Path) -> None:
    ended = []
    for run in ("guarded", "plain"):
        config = prepared(tmp_path, [], run=run)
        loop = build_loop(config, SoloRank(), deliver_here)
        if run == "plain":
            loop.task = IntentNerTask(loop.state.model, read_workload(config), CPU)
        assert isinstance(loop.task, Loads) is (run == "guarded")
        loop.run()
        assert loop.state.step == 12
        ended.append(weights_of(loop))
    guarded, plain = ended
    assert all(torch.equal(guarded[name], plain[name]) for name in plain)


def test_bad_samples_are_left_out_counted_and_named_and_every_batch_is_a_step(
    spoilt: JobConfig, trained: TrainLoop, workload: Workload
) -> None:
    assert (trained.state.position, trained.state.step) == (12, 12)
    letters = letters_of(spoilt)
    assert trained.breaker.skip_rate.bad == len(letters) > 4  # each of them in each epoch
    assert trained.breaker.skip_rate.total == sum(len(trained.batches.global_indices(at)) for at in range(12))
    assert {letter.source for letter in letters} == {"snips/train_Go_full.json"}
    assert {letter.index for letter in letters} == set(np.flatnonzero(~workload.usable).tolist())
    kinds = {letter.kind: letter.why for letter in letters}
    assert kinds[BadKind.TOO_LONG] == "length 600, at most 512"
    assert "snips/train_Go_full.json#" in kinds[BadKind.RAISED]


def test_an_epoch_meets_each_entry_once_readable_or_not(spoilt: JobConfig, workload: Workload) -> None:
    batches = build_loop(spoilt, SoloRank(), deliver_here).batches
    met = np.concatenate([batches.global_indices(at) for at in range(batches.batches_per_epoch)])
    assert sorted(met.tolist()) == list(range(workload.num_samples))
    assert workload.num_samples == len(workload.train) + 3


def test_the_loss_and_its_gradient_are_those_of_the_batch_without_the_bad_samples(workload: Workload) -> None:
    bad = np.flatnonzero(~workload.usable)
    good = np.flatnonzero(workload.usable)[:8]
    mixed = np.concatenate([good[:3], bad[:2], good[3:], bad[2:]])
    gradients = []
    for indices in (good, mixed):
        torch.manual_seed(3)
        model = build(workload.network).eval()
        IntentNerTask(model, workload, CPU).loss(indices).backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*gradients, strict=True) if one is not None)


def test_a_piece_that_is_all_bad_adds_nothing_and_counts_nothing(workload: Workload) -> None:
    task = IntentNerTask(build(workload.network).eval(), workload, CPU)
    bad = np.flatnonzero(~workload.usable)
    whole = np.concatenate([np.flatnonzero(workload.usable)[:6], bad])
    assert task.partial_loss(bad, whole).item() == 0.0
    torch.testing.assert_close(task.partial_loss(whole, whole), task.loss(whole))
    assert (task.weight(bad), task.weight(whole)) == (0.0, 6.0)


def test_under_want_of_memory_long_texts_are_cut_and_it_is_said_how_many(workload: Workload) -> None:
    task = IntentNerTask(build(workload.network).eval(), workload, CPU)
    assert isinstance(task, Shrinks)
    lengths = workload.train.lengths
    all_of_it = np.flatnonzero(workload.usable)
    whole, levels = task.loss(all_of_it), range(task.shrink_levels + 1)
    assert task.shrink_levels == 2
    for level in levels[1:]:
        most = int(lengths.max()) >> level
        share = float((lengths > most).mean())
        distortion = task.shrink(level)
        assert distortion.said == f"texts are cut to {most} words, which shortens {share:.1%} of them"
        assert distortion.fraction == share
        assert task.payload(all_of_it)["word_ids"].shape[1] == min(most, int(lengths[all_of_it].max()))
        torch.testing.assert_close(task.partial_loss(all_of_it, all_of_it), task.loss(all_of_it))
    task.shrink(0)
    assert torch.equal(task.loss(all_of_it), whole)


def test_a_run_that_never_has_room_comes_to_its_shortest_texts_and_its_ledger_says_what_was_cut(
    tmp_path: Path,
) -> None:
    fault = Fault(kind=FaultKind.OUT_OF_MEMORY, position=4, above_samples=0)
    config = replace(prepared(tmp_path, []), faults=FaultPlan(faults=(fault,)))
    loop = build_loop(config, SoloRank(), deliver_here)
    loop.run()
    events = read_ledger(Home.find(config.home).ledger).events
    moves = [event for event in events if event.data.get("degradation") == "memory_rung"]
    capped = [move.data for move in moves if move.data["level"].startswith("capped input")]
    assert [data["level"] for data in capped] == ["capped input, level 1", "capped input, level 2"]
    assert "texts are cut to 2 words, which shortens 100.0% of them" in capped[0]["distortions"]
    assert "texts are cut to 1 words, which shortens 100.0% of them" in capped[1]["distortions"]
    assert (loop.state.position, loop.state.step) == (12, 11)  # the one batch is given up, with a letter


def test_a_payload_and_sources_can_be_had_of_a_batch_with_bad_samples(workload: Workload) -> None:
    task = IntentNerTask(build(workload.network), workload, CPU)
    bad = np.flatnonzero(~workload.usable)
    assert task.payload(bad) == {}
    assert set(task.sources(bad)) == {"snips/train_Go_full.json"}
    assert len(task.payload(np.concatenate([bad, np.flatnonzero(workload.usable)[:2]]))["intent"]) == 2
