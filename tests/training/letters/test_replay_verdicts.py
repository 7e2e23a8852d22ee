"""What a replay must not say: verdicts that fit the numbers and are wrong all the same."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from failsoft.training.letters.diagnosis import Cause, Evidence, Seen, diagnose
from failsoft.training.letters.letterbook import read_letter_book
from failsoft.training.letters.replay import Replay
from tests.training.replay_toys import ToyRun
from tests.training.test_loop import nan_at
from tests.training.toys import ToyTask

BAD, FINE, UNKNOWN = Seen.BAD, Seen.FINE, Seen.UNKNOWN


class OwnCast(ToyTask):
    """Sample 11 overflows in a cast to half precision that the loss makes itself."""

    def loss(self, indices: NDArray[np.int64]) -> Tensor:
        loss = super().loss(indices)
        return loss + torch.full((), 7e4).half().float() * 1e-6 if 11 in indices else loss


class OwnAutocast(ToyTask):
    """Sample 11 overflows under an autocast that the loss enters itself."""

    def loss(self, indices: NDArray[np.int64]) -> Tensor:
        with torch.autocast("cpu", dtype=torch.float16):
            loss = super().loss(indices)
            large = torch.full((1, 4), 300.0)
            return loss + torch.mm(large, large.T).float().sum() * 1e-6 if 11 in indices else loss


class Broken(ToyTask):
    """Code that was changed for the worse since."""

    def loss(self, indices: NDArray[np.int64]) -> Tensor:
        return super().loss(indices) * torch.nan


class Shrunk(ToyTask):
    """Data of which most is gone since."""

    def loss(self, indices: NDArray[np.int64]) -> Tensor:
        if int(indices.max()) > 3:
            raise IndexError("index 5 is out of bounds for axis 0 with size 4")
        return super().loss(indices)


def struck_at(folder: Path, position: int) -> ToyRun:
    run = ToyRun(folder=folder, faults=nan_at(position))
    run.build().run()
    return run


def replay_first(run: ToyRun) -> Replay:
    letters = read_letter_book(run.folder / "dead_letters").letters
    return run.replay(next(letter.position for letter in letters if letter.refused))


@pytest.mark.parametrize("task", [OwnCast, OwnAutocast])
def test_a_loss_that_lowers_its_own_precision_is_the_numerics_fault(tmp_path: Path, task: type[ToyTask]) -> None:
    run = ToyRun(folder=tmp_path, task=task)
    run.build().run()
    found = replay_first(run)
    assert found.diagnosis.cause is Cause.NUMERICS, found.as_data()
    assert found.blamed.samples == (11,)


def test_code_that_spoils_every_batch_is_not_taken_for_bad_data(tmp_path: Path) -> None:
    run = struck_at(tmp_path, 13)
    run.task = Broken
    found = run.replay(13)
    assert found.diagnosis.cause is Cause.UNDECIDED, found.as_data()
    assert "so are 8 other batches" in found.diagnosis.why
    assert found.blamed.samples == ()


def test_a_task_that_can_do_it_no_more_leaves_the_verdict_open_and_says_why(tmp_path: Path) -> None:
    run = struck_at(tmp_path, 22)
    run.task = Shrunk
    found = run.replay(22)
    assert found.diagnosis.cause is Cause.UNDECIDED
    assert any("IndexError: index 5 is out of bounds" in note for note in found.notes)
    assert len(found.notes) < 12


@pytest.mark.parametrize(
    ("part", "value", "said"), [("versions", {"torch": "1.0"}, "torch (1.0, now"), ("config_digest", "x", "settings")]
)
def test_what_is_fine_now_under_other_packages_or_settings_is_not_blamed_on_the_hardware(
    tmp_path: Path, part: str, value: object, said: str
) -> None:
    run = struck_at(tmp_path, 3)
    assert run.replay(3).diagnosis.cause is Cause.HARDWARE
    events = [json.loads(line) for line in (tmp_path / "ledger.jsonl").read_text("utf-8").splitlines()]
    for event in events:
        if event["kind"] == "batch_refused":
            event["data"]["reproduction"][part] = value
    (tmp_path / "ledger.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events), "utf-8")
    found = run.replay(3)
    assert found.diagnosis.cause is Cause.UNDECIDED, found.as_data()
    assert said in found.diagnosis.why


def test_data_is_blamed_only_where_other_batches_are_fine_on_fresh_weights() -> None:
    def cause(*peers: Seen) -> Cause:
        return diagnose(Evidence(as_trained=(BAD,), single=BAD, fresh=(BAD, BAD), fresh_peers=peers)).cause

    assert [cause(FINE, FINE), cause(BAD, FINE), cause(UNKNOWN, UNKNOWN), cause()] == [Cause.DATA] * 4
    assert cause(BAD, BAD) is Cause.UNDECIDED
