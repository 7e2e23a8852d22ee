from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from torch import Tensor

from failsoft.health.faults import FaultKind, FaultPlan, burst
from failsoft.training.letters.circumstances import model_digest
from failsoft.training.letters.history import History, Rollback
from failsoft.training.letters.letter import DeadLetter
from failsoft.training.letters.rebuild import LoopRebuild
from failsoft.training.letters.rewalk import Walker, share_of
from failsoft.training.loop import LoopPlan
from tests.training.replay_toys import ToyRun
from tests.training.toys import ToyTask


def trained(folder: Path, *, faults: FaultPlan | None = None) -> tuple[ToyRun, LoopRebuild]:
    plan = LoopPlan(total_batches=24, seed=3, snapshot_every_steps=4, checkpoint_every_steps=8)
    run = ToyRun(folder=folder, faults=faults or FaultPlan(), plan=plan)
    run.build().run()
    return run, LoopRebuild(build=run.build, task=ToyTask)


@pytest.mark.parametrize("position", [0, 1, 7, 8, 9, 23, 24])
def test_a_walk_ends_in_the_state_of_an_undisturbed_run_at_that_position(tmp_path: Path, position: int) -> None:
    _, rebuild = trained(tmp_path / "run")
    reached = Walker(rebuild=rebuild, history=History()).to(position)
    assert reached.position == reached.parts.state.position == position
    short = LoopPlan(total_batches=max(1, position), seed=3, snapshot_every_steps=4, checkpoint_every_steps=8)
    other = ToyRun(folder=tmp_path / "other", plan=short).build()
    if position:
        other.run()
    assert model_digest(reached.parts.state.model) == model_digest(other.state.model)


def test_a_checkpoint_of_steps_that_a_rollback_to_disk_undid_is_no_start(tmp_path: Path) -> None:
    _, rebuild = trained(tmp_path)
    history = History(rollbacks=(Rollback(since=8, at=20),))
    assert Walker(rebuild=rebuild, history=history).to(22).started_from == "position-000000000008"
    assert Walker(rebuild=rebuild, history=history).to(18).started_from == "position-000000000016"


def test_a_damaged_checkpoint_is_passed_over_and_left_where_it_is(tmp_path: Path) -> None:
    _, rebuild = trained(tmp_path)
    torn = tmp_path / "checkpoints" / "position-000000000016" / "state.safetensors"
    torn.write_bytes(b"half")
    reached = Walker(rebuild=rebuild, history=History()).to(20)
    assert reached.started_from == "position-000000000008"
    assert any("position-000000000016 can't be used" in note for note in reached.notes)
    assert torn.exists()


def test_the_rate_that_a_rollback_lowered_is_lowered_on_the_way(tmp_path: Path) -> None:
    _, rebuild = trained(tmp_path)
    history = History(rollbacks=(Rollback(since=9, at=9, rate_factor=0.5),))
    reached = Walker(rebuild=rebuild, history=history).to(12)
    assert 0.5 < reached.parts.guard.relief.factor < 1.0
    assert model_digest(reached.parts.state.model) != model_digest(
        Walker(rebuild=rebuild, history=History()).to(12).parts.state.model
    )


def test_a_batch_that_the_run_applied_and_the_walk_refuses_is_noted(tmp_path: Path) -> None:
    run, _ = trained(tmp_path)

    class Ill(ToyTask):
        def loss(self, indices: NDArray[np.int64]) -> Tensor:
            return super().loss(indices) * np.nan

    reached = Walker(rebuild=LoopRebuild(build=run.build, task=Ill), history=History()).to(10)
    assert sum("was refused on the way" in note for note in reached.notes) == 2


def test_a_refused_batch_is_not_tried_again_on_the_way(tmp_path: Path) -> None:
    _, rebuild = trained(tmp_path, faults=FaultPlan(faults=burst(FaultKind.NAN_BATCH, first=10, count=2)))
    letter = DeadLetter(position=10, step=10, rank=0, reason="of another version", sample_ids=())
    history = History(refused={10: letter, 11: letter})
    assert Walker(rebuild=rebuild, history=history).to(14).walked == 4


@pytest.mark.parametrize("world", [1, 2, 3, 8])
def test_the_shares_of_all_ranks_weigh_as_much_as_their_samples(world: int) -> None:
    whole = np.arange(5)
    shares = [share_of(whole, rank, world) for rank in range(world)]
    assert sum(weight for _, weight in shares) / world == pytest.approx(1.0)
    assert sorted(sample for indices, weight in shares if weight for sample in indices.tolist()) == whole.tolist()
