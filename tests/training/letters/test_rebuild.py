"""A loop of one's own, without TrainLoop and without checkpoints, is replayed through the small protocol."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from failsoft.artifacts.store import ArtifactStore
from failsoft.health.clock import ManualClock
from failsoft.training.guard import StepGuard
from failsoft.training.letters.diagnosis import Cause
from failsoft.training.letters.letter_office import LetterOffice
from failsoft.training.letters.letterbook import LETTERS_FOLDER, read_letter_book
from failsoft.training.letters.rebuild import LoopRebuild, Parts, Rebuild
from failsoft.training.letters.replay import Replayer
from failsoft.training.letters.requeue import append_requeue
from failsoft.training.rng import seed_all
from failsoft.training.state import TrainingState
from tests.training.replay_toys import ToyRun
from tests.training.test_loop import nan_at


@dataclass
class OwnRun:
    """Forty samples in batches of four, in order; sample 21 is poison."""

    folder: Path
    seed: int = 5

    def __post_init__(self) -> None:
        self.identity = {"what": "own"}
        self.inputs = torch.randn(40, 3, generator=torch.Generator().manual_seed(1))
        self.inputs[21] = torch.inf
        self.store = ArtifactStore(self.folder / "checkpoints", ManualClock(), kind="checkpoint")

    def parts(self, seed: int | None = None) -> Parts:
        torch.manual_seed(self.seed if seed is None else seed)
        model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.3), nn.Linear(8, 1))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        return Parts(TrainingState(model=model, optimizer=optimizer), StepGuard(model=model, optimizer=optimizer))

    def loss(self, model: nn.Module, indices: NDArray[np.int64]) -> Tensor:
        return torch.as_tensor(model(self.inputs[torch.from_numpy(indices)]).pow(2).mean())

    def indices(self, position: int) -> NDArray[np.int64]:
        return np.arange(4) + 4 * (position % 10)

    def train(self) -> None:
        state, guard = self.parts()
        office = LetterOffice(run_folder=self.folder, clock=ManualClock(), model=state.model, seed=self.seed)
        seed_all(self.seed, rank=0, position=0)
        for position in range(10):
            indices = self.indices(position)
            outcome = guard.step(
                lambda indices=indices: self.loss(state.model, indices),  # type: ignore[misc]
                sample_ids=indices.tolist(),
                position=position,
            )
            if outcome.applied:
                state.step += 1
            else:
                office.refused(outcome, step=state.step)


def test_a_plain_loop_is_replayed_from_its_beginning_and_the_poison_is_named(tmp_path: Path) -> None:
    run = OwnRun(tmp_path)
    run.train()
    rebuild: Rebuild = run
    found = Replayer(rebuild=rebuild, book=read_letter_book(tmp_path / LETTERS_FOLDER)).replay(5)
    assert found.evidence.state_met, found.as_data()
    assert (found.diagnosis.cause, found.blamed.samples) == (Cause.DATA, (21,))


@pytest.mark.parametrize(("position", "batch"), [(7, 7), (24, 12), (25, 25)])
def test_a_position_after_the_planned_ones_is_the_entry_of_the_list(tmp_path: Path, position: int, batch: int) -> None:
    run = ToyRun(folder=tmp_path, faults=nan_at(12))
    run.build().run()
    append_requeue(tmp_path, 12, at_s=0.0)
    rebuild = LoopRebuild(build=run.build, task=run.task)
    assert rebuild.indices(position).tolist() == run.build().batches.global_indices(batch).tolist()
