"""What a loop that dead-letters through the office finds in its letters and its ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from failsoft.health.clock import ManualClock
from failsoft.health.faults import FaultKind, FaultPlan, burst
from failsoft.health.ledger import read_ledger
from failsoft.training.guard import GuardPolicy, Refusal, StepGuard
from failsoft.training.letters.circumstances import model_digest
from failsoft.training.letters.deadletters import LetterPolicy
from failsoft.training.letters.fingerprints import unpack_generators
from failsoft.training.letters.letter_office import LetterOffice
from failsoft.training.letters.letterbook import LETTERS_FOLDER, read_dead_letters
from failsoft.training.letters.payloads import read_payload
from failsoft.training.spikes import SpikePolicy
from tests.training.test_loop import nan_at
from tests.training.toys import ToyTask, toy_loop, toy_model


class TellingTask(ToyTask):
    """Knows where its samples come from and what they look like."""

    def sources(self, indices: NDArray[np.int64]) -> list[str]:
        return [f"shard-{index % 2}" for index in indices.tolist()]

    def payload(self, indices: NDArray[np.int64]) -> Mapping[str, Tensor]:
        return {"inputs": self.inputs[torch.from_numpy(indices)]}


def test_a_plain_loop_gets_full_letters_by_one_callback(tmp_path: Path) -> None:
    model = toy_model()
    office = LetterOffice(run_folder=tmp_path, clock=ManualClock(), model=model, task=TellingTask(model), seed=7)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    guard = StepGuard(model=model, optimizer=optimizer, on_refused=office.refused)
    met = model_digest(model)
    guard.step(lambda: model(torch.full((4, 4), torch.nan)).mean(), sample_ids=(1, 2, 3), position=5)
    (letter,) = read_dead_letters(tmp_path / LETTERS_FOLDER)
    assert (letter.position, letter.reason, letter.model_digest) == (5, Refusal.LOSS, met)
    assert dict(letter.sources) == {"shard-0": 1, "shard-1": 2}
    assert office.event_data(letter)["reproduction"]["model_digest"] == met


def test_the_generators_of_a_letter_are_those_before_the_batch(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    office = LetterOffice(run_folder=tmp_path, clock=ManualClock(), model=model)
    guard = StepGuard(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), on_refused=office.refused)
    torch.manual_seed(11)
    before = torch.get_rng_state()
    guard.step(lambda: model(torch.ones(4, 4)).mean() * torch.nan)
    (letter,) = read_dead_letters(tmp_path / LETTERS_FOLDER)
    assert letter.generators is not None
    torch.manual_seed(99)
    unpack_generators(letter.generators, torch.device("cpu"))
    assert torch.equal(torch.get_rng_state(), before)


def sized_loss(model: nn.Module, size: float) -> Tensor:
    """A loss of this size, on which the model has no influence."""
    return torch.as_tensor(model(torch.ones(2, 4)).sum() * 0.0 + size)


def test_a_spikes_letter_quotes_its_limit_as_a_number_and_in_words(tmp_path: Path) -> None:
    model = nn.Linear(4, 1)
    policy = GuardPolicy(loss_spikes=SpikePolicy(window=8, warm_up=4))
    guard = StepGuard(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=1e-6), policy=policy)
    office = LetterOffice(run_folder=tmp_path, clock=ManualClock(), model=model, guard=guard)
    guard.on_refused = office.refused
    for size in (1.0, 1.1, 0.9, 1.0, 1000.0):
        guard.step(partial(sized_loss, model, size))
    (letter,) = read_dead_letters(tmp_path / LETTERS_FOLDER)
    assert letter.reason == Refusal.LOSS_SPIKE
    assert letter.spike_limit is not None
    assert 1.1 < letter.spike_limit < 1000.0
    assert "is above" in letter.why


@pytest.mark.parametrize("keeps", [True, False])
def test_digest_generators_and_payload_are_kept_as_the_policy_says(tmp_path: Path, keeps: bool) -> None:
    model = toy_model()
    policy = LetterPolicy(max_digest_bytes=10**9 if keeps else 0, keep_generators=keeps, max_payloads=3 if keeps else 0)
    task = TellingTask(model)
    office = LetterOffice(run_folder=tmp_path, clock=ManualClock(), model=model, task=task, policy=policy)
    guard = StepGuard(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), on_refused=office.refused)
    guard.step(lambda: model(torch.full((4, 4), torch.nan)).mean(), sample_ids=(3, 1))
    (letter,) = read_dead_letters(tmp_path / LETTERS_FOLDER)
    kept = (letter.model_digest, letter.generators, letter.generators_digest, letter.payload)
    assert all((value is not None) == keeps for value in kept)
    if keeps:
        back = read_payload(tmp_path / LETTERS_FOLDER, letter)
        assert torch.equal(back["inputs"], task.inputs[torch.tensor([3, 1])])


def test_each_anomaly_of_a_run_has_a_reproduction_record_in_the_ledger(tmp_path: Path) -> None:
    loop = toy_loop(tmp_path, faults=FaultPlan(faults=burst(FaultKind.NAN_BATCH, first=6, count=5)))
    replace(loop, task=TellingTask(loop.state.model)).run()
    events = read_ledger(tmp_path / "ledger.jsonl").events
    anomalies = [event for event in events if event.kind in {"batch_refused", "rolled_back"}]
    assert len(anomalies) == 6
    for event in anomalies:
        record = event.data["reproduction"]
        assert record["seed"] == 3
        assert record["model_digest"].startswith("blake3:")
        assert record["config_digest"].startswith("blake3:")
    assert anomalies[0].data["sources"]


def test_letters_of_refused_and_undone_batches_say_what_a_replay_needs(tmp_path: Path) -> None:
    toy_loop(tmp_path, faults=FaultPlan(faults=burst(FaultKind.NAN_BATCH, first=6, count=5))).run()
    letters = read_dead_letters(tmp_path / LETTERS_FOLDER)
    undone = [letter for letter in letters if not letter.refused]
    assert [(letter.position, letter.undone_at) for letter in undone] == [(4, 11), (5, 11)]
    refused = [letter for letter in letters if letter.refused]
    assert len({letter.model_digest for letter in refused}) == 1
    assert len({letter.generators_digest for letter in refused}) == 1


def test_a_healthy_run_writes_no_letter_and_makes_no_folder(tmp_path: Path) -> None:
    toy_loop(tmp_path, faults=nan_at()).run()
    assert not (tmp_path / LETTERS_FOLDER).exists()


@pytest.mark.parametrize("asked", ["sources", "payload"])
@pytest.mark.parametrize("error", [KeyError("shard table"), OSError("disk"), RuntimeError("sparse")])
def test_a_task_that_fails_at_what_it_is_asked_costs_the_letter_a_field_and_not_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str, error: Exception
) -> None:
    def fails(_task: object, _indices: object) -> None:
        raise error

    monkeypatch.setattr(TellingTask, asked, fails)
    loop = toy_loop(tmp_path, faults=nan_at(3, 9))
    loop.task = TellingTask(loop.state.model)
    loop.desk = replace(loop.desk, letters=LetterPolicy(max_payloads=4))
    loop.__post_init__()
    loop.run()
    letters = read_dead_letters(tmp_path / LETTERS_FOLDER)
    assert [letter.position for letter in letters] == [3, 9]
    assert all((letter.sources == {}) is (asked == "sources") for letter in letters)
    assert all((letter.payload is None) is (asked == "payload") for letter in letters)
    said = [event.why for event in read_ledger(tmp_path / "ledger.jsonl").events if event.kind == "words_lost"]
    assert len(said) == 1
    assert type(error).__name__ in said[0]
